"""The other end of the wire: a connection to a gateway, and what a terminal shows of a session."""

from actors.client.connection import Attachment, ConnectFailed, Connection, Detached, LinkClosed, Refused, connect

__all__ = ["Attachment", "ConnectFailed", "Connection", "Detached", "LinkClosed", "Refused", "connect"]
