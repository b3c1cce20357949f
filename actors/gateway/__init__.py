"""The gateway: who may connect, and what a client and a session say to each other over a websocket."""

from actors.gateway.gateway import Gateway, open_gateway

__all__ = ["Gateway", "open_gateway"]
