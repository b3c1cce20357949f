"""What the gateway needs of an agent, as small protocols. The agent does not know that it is served."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from protocol import commands as cmd
from protocol.errors import Code
from protocol.events import Event

# Called once, synchronously, with an `Ack`, another result, or the `RuleViolation` that refused the command. What it is
# told is committed.
Reply = Callable[[Any], None]


class Reader(Protocol):
    """A subscription to one session. Both calls are synchronous and never raise."""

    def offer(self, event: Event) -> bool:
        """Take an event. False: this reader is cut off, nothing more is to come."""
        ...

    def closed(self, code: Code, seq: int) -> None:
        """The session sends nothing after `seq`."""
        ...


class SessionHandle(Protocol):
    """One open session. Commands take effect in the order they are submitted."""

    @property
    def id(self) -> str: ...

    @property
    def log_id(self) -> str: ...

    @property
    def seq(self) -> int: ...

    async def submit(self, command: cmd.Params, reply: Reply, *, cause: str = "") -> None:
        """Queue a command, waiting for room. A checkpoint.

        Raises:
            RuleViolation: `session.closed` - it has ended; `reply` is not called.
        """
        ...

    async def submit_attach(self, reader: Reader, params: cmd.Attach, reply: Reply) -> None:
        """Queue an attach. `reply` is told `Attached`, then `reader` is offered what follows, in one step."""
        ...

    def detach(self, reader: Reader) -> None:
        """Offer nothing more to `reader`. Does nothing if it is not attached."""
        ...


class ServedAgent(Protocol):
    """The agent behind a gateway."""

    def find_session(self, session_id: str) -> SessionHandle | None: ...

    async def open_session(self, session_id: str | None) -> tuple[SessionHandle, bool]:
        """Return the session, and whether it was made now.

        Raises:
            RuleViolation: `session.invalid`, `session.limit`, `session.closed` or `store.failed`.
        """
        ...

    def list_sessions(self, after: str, limit: int) -> tuple[Sequence[object], bool]:
        """Return up to `limit` sessions with ids after `after`, and whether there are more."""
        ...
