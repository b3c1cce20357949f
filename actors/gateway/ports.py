"""What the gateway needs of an agent, as small protocols. The agent does not know that it is served."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from protocol import commands as cmd
from protocol.errors import Code
from protocol.events import Event

# Called once, synchronously, with a result or with the `RuleViolation` that refused the command. What it is told is
# committed.
Reply = Callable[[Any], object]


class Reader(Protocol):
    """A subscription to one session. Both calls are synchronous and never raise."""

    def offer(self, event: Event) -> bool:
        """Take an event. False: this reader is cut off, nothing more is to come."""
        ...

    def closed(self, code: Code, seq: int) -> None:
        """The session sends nothing after `seq`."""
        ...


class Watched(Protocol):
    """What a reader is attached to."""

    def detach(self, reader: Reader) -> None:
        """Offer nothing more to `reader`. Does nothing if it is not attached."""
        ...


class Handle(Protocol):
    """One open session. Commands take effect in the order in which they are submitted."""

    @property
    def id(self) -> str: ...

    @property
    def log_id(self) -> str: ...

    @property
    def committed(self) -> int: ...

    async def submit(self, command: cmd.Params, reply: Reply, *, reader: Reader | None = None) -> None:
        """Queue a command, waiting for room. A checkpoint.

        For `Attach` the reply has `log_id` and `seq`, and `reader` is offered what follows it, in the same step.

        Raises:
            RuleViolation: `session.unknown` or `session.closed`; `reply` is not called.
        """
        ...


class ServedAgent(Protocol):
    """The agent behind a gateway."""

    def find(self, session_id: str) -> Watched | None: ...

    async def wake_session(self, session_id: str) -> Handle | None:
        """Return the session if it is open, or was kept: then it is opened. A checkpoint only then.

        Raises:
            RuleViolation: `session.limit`, `session.closed`, `store.failed` or `store.damaged`.
        """
        ...

    async def open_session(self, session_id: str | None = None) -> tuple[Handle, bool]:
        """Return the session, and whether it was made now; its log is kept.

        Raises:
            RuleViolation: `session.invalid`, `session.limit`, `session.closed` or `store.failed`.
        """
        ...

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> tuple[Sequence[object], bool]:
        """Return up to `limit` sessions with ids after `after`, and whether there are more. May be a checkpoint."""
        ...

    async def close_session(self, session_id: str) -> None:
        """Cancel what runs in the session and let go of it. A checkpoint, for as long as the agent's grace."""
        ...
