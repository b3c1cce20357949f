"""The gateway: who may connect, and what a client and a session say to each other over a websocket."""
