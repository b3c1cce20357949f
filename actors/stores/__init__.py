"""Where logs are kept: implementations of `actors.agent.ports.SessionStore`."""

from actors.agent.memory import MemoryStore
from actors.agent.ports import StoreError
from actors.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteStore", "StoreError"]
