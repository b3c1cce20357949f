"""Where logs are kept: implementations of `actors.agent.ports.SessionStore`."""

from actors.agent.memory import MemoryStore

__all__ = ["MemoryStore"]
