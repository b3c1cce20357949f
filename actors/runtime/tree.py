"""What lives in a system, as data, as text, and on a signal.

It decides how a tree of actors reads in a terminal, and that asking for it never breaks the program. It must not know
systems or actors: the system makes the nodes, here they are written down.
"""

import os
import signal
import sys
import threading
import unicodedata
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Protocol, TextIO

#: Longer names and types are cut, in characters.
_MAX_WORD = 160
#: Columns are as wide as their longest word up to this, in terminal cells: one odd name stands out of its own line and
#: does not push everybody's figures off the screen.
_MAX_PADDING = 48


@dataclass(frozen=True, slots=True)
class Node:
    """One actor, supervisor or system in `tree()`. `str(node)` is `node.text()`.

    Attributes:
        name: Its name.
        state: One word: starting, running, restarting, draining, stopping; for a supervisor or system supervising,
            restarting, stopping.
        depth: How many messages are queued.
        peak: The most that ever were.
        children: What it supervises, in the order of start.
        handling: The type name of the message in hand, or None.
        handling_s: For how many seconds it has had that message, or None.
        asks: How many asks wait for it.
        restarts: How often it was restarted.
        waits_for: The name of the actor that its body asks or sends to at this moment, or None.
    """

    name: str
    state: str
    depth: int = 0
    peak: int = 0
    children: tuple["Node", ...] = ()
    handling: str | None = None
    handling_s: float | None = None
    asks: int = 0
    restarts: int = 0
    waits_for: str | None = None

    def __str__(self) -> str:
        return self.text()

    def text(self, *, max_children: int | None = 100) -> str:
        """Return it with everything below it, indented, one line each, to be read in a terminal.

        A line has the name, the state, how many messages are queued / the most that ever were, and what there is to
        say: the message in hand and for how long, the asks that wait, the restarts, whom it waits for. A name that is
        not plain visible text is quoted and escaped.

        Args:
            max_children: How many children of a node are shown, 0 or more; None for all. The idle ones are left out
                first, and a line says how many are not shown.

        Raises:
            ValueError: `max_children` is negative.
        """
        if max_children is not None and max_children < 0:
            raise ValueError(f"max_children must be 0 or more, or None for all, not {max_children}")
        lines: list[tuple[str, ...]] = []
        # A stack of its own: supervisors may nest deeper than Python calls do.
        todo: list[tuple[int, Node | str]] = [(0, self)]
        while todo:
            level, item = todo.pop()
            indent = "  " * level
            if isinstance(item, str):
                lines.append((indent + item,))
                continue
            name, *cells = _cells(item)
            lines.append((indent + name, *cells))
            todo += [(level + 1, below) for below in reversed(_below(item, max_children))]
        return _aligned(lines)


def _below(node: Node, limit: int | None) -> list[Node | str]:
    children = node.children
    if limit is None or len(children) <= limit:
        return list(children)
    by_interest = sorted(range(len(children)), key=lambda index: _is_idle(children[index]))
    hidden = by_interest[limit:]
    busy = sum(not _is_idle(children[index]) for index in hidden)
    rest = f"{busy} of them not idle" if busy else "all idle"
    shown: list[Node | str] = [children[index] for index in sorted(by_interest[:limit])]
    return [*shown, f"... {len(hidden)} more not shown, {rest}"]


def _is_idle(node: Node) -> bool:
    busy = node.depth or node.asks or node.children or node.handling is not None or node.waits_for is not None
    return not busy and node.state == "running"


def _cells(node: Node) -> tuple[str, ...]:
    about: list[str] = []
    if node.handling is not None:
        age = "" if node.handling_s is None else f" for {_age(node.handling_s)}"
        about.append(f"handling {_word(node.handling)}{age}")
    if node.asks:
        about.append(f"{node.asks} open {'ask' if node.asks == 1 else 'asks'}")
    if node.restarts:
        about.append(f"{node.restarts} {'restart' if node.restarts == 1 else 'restarts'}")
    if node.waits_for is not None:
        about.append(f"waits for {_word(node.waits_for)}")
    # A supervisor has no mailbox, also while it stops or is restarted.
    mailbox = "" if node.children or node.state == "supervising" else f"{node.depth}/{node.peak}"
    return _word(node.name), _word(node.state), mailbox, ", ".join(about)


def _word(text: str) -> str:
    """Return a name as it is if it is plain visible text, else quoted and escaped, so that no two look the same."""
    cut = text[:_MAX_WORD]
    plain = cut.isprintable() and cut == cut.strip() and "  " not in cut and cut[:1] not in ("", "'", '"')
    return (cut if plain else repr(cut)) + ("..." if len(text) > _MAX_WORD else "")


def _age(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _aligned(lines: list[tuple[str, ...]]) -> str:
    # A line of one cell is a remark; it is in nobody's way.
    rows = [row for row in lines if len(row) > 1]
    columns = [map(_width, column) for column in zip(*rows, strict=True)]
    widths = [max((width for width in column if width <= _MAX_PADDING), default=0) for column in columns]
    return "\n".join(
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in lines
    )


def _width(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(char) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


class HasTree(Protocol):
    """What can be dumped: a system."""

    @property
    def name(self) -> str:
        """For the message that says its tree could not be had."""
        ...

    def tree(self) -> Node:
        """Return what lives now."""
        ...


@contextmanager
def dump_on_signal(system: HasTree, signum: int, *, file: TextIO | None = None) -> Generator[None, None, None]:
    """While the block lasts, write the system's tree to a file each time a signal comes. No checkpoint.

    It is a plain signal handler, no task: it works while an actor spins and nothing else can run. What goes wrong in it
    stays in it. The block's end puts the earlier handler back. Blocks may overlap; each writes its own system.

    Args:
        system: Whose tree. Its event loop should be the main thread's.
        signum: For example `signal.SIGUSR1`.
        file: Where to, by default `sys.stderr` as it is when the signal comes. It must not wait for a lock that the
            main thread may hold.

    Raises:
        RuntimeError: This is not the main thread, the only one where Python runs signal handlers; or the signal is
            handled by something that was not installed from Python, which could not be put back.
        OSError, ValueError: The signal cannot be handled (SIGKILL), or there is no such signal.
    """
    if threading.current_thread() is not threading.main_thread():
        here = threading.current_thread().name
        raise RuntimeError(f"dump_on_signal works in the main thread only, where signals are handled; this is {here!r}")
    earlier = signal.getsignal(signum)
    if earlier is None:
        raise RuntimeError(f"signal {signum} has a handler that is not Python's own, and could not be put back")
    dump = _Dump(system, signum, file, earlier)
    signal.signal(signum, dump)
    try:
        yield
    finally:
        dump.close()


_Handler = Callable[[int, FrameType | None], object] | int


class _Dump:
    """The handler. Once closed, it stands for the one below it, wherever it is still found."""

    def __init__(self, system: HasTree, signum: int, file: TextIO | None, below: _Handler) -> None:
        self._system = system
        self._signum = signum
        self._file = file
        self._below = below
        self._closed = False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self._closed:
            # Put back by another handler that was installed above it and restored later than it should have been.
            signal.signal(signum, self._next())
            signal.raise_signal(signum)
            return
        dump: _Handler = self
        while isinstance(dump, _Dump):
            try:
                if not dump._closed:
                    dump._write()
            except Exception:
                # No `suppress`: entering it is a call, and there may be no stack left for one.
                pass
            dump = dump._below

    def close(self) -> None:
        """Put the handler below back, unless another one was installed over this one."""
        self._closed = True
        on_top: object = signal.getsignal(self._signum)
        if on_top is self:
            signal.signal(self._signum, self._next())

    def _write(self) -> None:
        file = sys.stderr if self._file is None else self._file
        # Without a console there is no stderr.
        if file is not None:  # pyright: ignore[reportUnnecessaryComparison]
            _write(file, self._text() + "\n")

    def _next(self) -> _Handler:
        below = self._below
        while isinstance(below, _Dump) and below._closed:
            below = below._below
        return below

    def _text(self) -> str:
        try:
            return self._system.tree().text()
        except Exception as error:
            return f"the tree of {self._system.name!r} could not be had: {error!r}"


def _write(file: TextIO, text: str) -> None:
    encoding = getattr(file, "encoding", None) or "utf-8"
    data = text.encode(encoding, "backslashreplace")
    try:
        file.write(data.decode(encoding))
        file.flush()
    except RuntimeError:
        # The signal came in the middle of a write to this very file, and its buffer refuses to be entered again.
        descriptor = file.fileno()
        while data:
            data = data[os.write(descriptor, data) :]
