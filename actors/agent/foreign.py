"""Which exceptions that are no `Exception` belong to whoever raised them, and which go on through us.

A `Cancelled` must leave the scope that sent it. One that nobody around us sent would find no scope to end in, and take
every session with it; so would a `SystemExit` from a tool. Those are a failure of the code that raised them.
"""

from collections.abc import Callable
from types import TracebackType
from typing import cast

import trio


def is_foreign(error: BaseException) -> bool:
    """Say whether the code we called raised this on its own account. Ask inside the scope that would be cancelled.

    A real cancel has a scope of ours that is cancelled, and goes on to it. Ctrl-C is the application's.
    """
    inner = _members(error)
    if inner:
        return all(is_foreign(one) for one in inner)
    if isinstance(error, KeyboardInterrupt):
        return False
    if isinstance(error, trio.Cancelled):
        return trio.current_effective_deadline() > float("-inf")
    return True


def describe_foreign(error: BaseException) -> str:
    """Return a sentence's end that names the kinds: `ended with SystemExit, though ...`."""
    return f"ended with {', '.join(sorted(_kinds(error)))}, though nobody cancelled or stopped it"


class contain:  # used like a function: `with contain("the tool"):`
    """Turn what the code in the block raises on its own account into an `Exception`; anything else goes on as it is."""

    __slots__ = ("_kind", "_who")

    def __init__(self, who: str, kind: Callable[[str], Exception] = RuntimeError) -> None:
        self._who = who
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            return
        if is_foreign(error):
            raise self._kind(f"{self._who} {describe_foreign(error)}") from error
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            own, rest = group.split(_is_foreign_stop)
            if own is not None and rest is not None:
                # Together with a cancel of ours, which goes on to its scope; alone the rest would end the application.
                failed = self._kind(f"{self._who} {describe_foreign(own)}")
                raise BaseExceptionGroup(group.message, (failed, rest)) from error


class fence:  # used like a function: `with fence():`
    """Close the scopes that the code in the block left open in this task: trio raises a `RuntimeError` for them.

    Left open, one that is cancelled would cancel whatever this task does next. Tasks of a nursery that was left open
    are cancelled first: afterwards nothing would reach them, and the program could not end.
    """

    __slots__ = ("_nurseries", "_scope")

    def __enter__(self) -> None:
        self._nurseries = len(trio.lowlevel.current_task().child_nurseries)
        self._scope = trio.CancelScope()
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        for nursery in trio.lowlevel.current_task().child_nurseries[self._nurseries :]:
            nursery.cancel_scope.cancel(reason="it was left open")
        return self._scope.__exit__(kind, error, traceback)


def _is_foreign_stop(error: BaseException) -> bool:
    return not isinstance(error, Exception | BaseExceptionGroup) and is_foreign(error)


def _kinds(error: BaseException) -> set[str]:
    inner = _members(error)
    return set[str]().union(*map(_kinds, inner)) if inner else {type(error).__name__}


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).exceptions
    return ()
