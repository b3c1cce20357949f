"""What a disk has of some files when the power goes: what was synced, and of the rest whatever it likes. Pure.

It decides what may be left after a cut. A sync keeps what was written to that file before; the names in a folder are
kept by a sync of the folder. Everything else may be kept, lost or half there, in any order, sector by sector: each
sector is as some write since the last sync has left it, or as it was then. It must not know SQLite, or who writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

#: Bytes that a disk writes whole or not at all.
SECTOR = 512
#: How much of what was not synced a cut keeps, of one file: nothing, the half, everything...
_KEPT = (0.0, 0.1, 0.5, 0.9, 1.0)
_TORN = 0.2
_GROWN = 0.3


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that were written to a place."""

    offset: int
    data: bytes

    def sectors(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the number of each sector that is touched, where in the file the piece lies, and the piece."""
        start, end = self.offset, self.offset + len(self.data)
        while start < end:
            stop = min(end, (start // SECTOR + 1) * SECTOR)
            yield start // SECTOR, start, self.data[start - self.offset : stop - self.offset]
            start = stop


@dataclass(frozen=True, slots=True)
class Truncate:
    """The file was cut off, or made longer, to this many bytes."""

    size: int


@dataclass(slots=True)
class Content:
    """What is in one file, whatever its name.

    Attributes:
        synced: What a cut cannot take.
        pending: What was done since, in order.
    """

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Write | Truncate] = field(default_factory=list)

    def sync(self) -> None:
        """Keep everything that was done."""
        for change in self.pending:
            _do(self.synced, change)
        self.pending.clear()

    def fail_to_sync(self, rng: Random) -> None:
        """Keep some of what was done. What is lost is not tried again: a later sync knows nothing of it."""
        self.synced = self.survive(rng)
        self.pending.clear()

    def survive(self, rng: Random) -> bytearray:
        """Return what is in the file after a cut."""
        likely = rng.choice(_KEPT)
        kept: dict[int, int] = {}  # by sector: the last change that has reached it, and all before it
        cuts: set[int] = set()
        for number, change in enumerate(self.pending):
            if isinstance(change, Truncate):
                if rng.random() < likely:
                    cuts.add(number)
                continue
            torn, whole = rng.random() < _TORN, rng.random() < likely
            for sector, _, _ in change.sectors():
                if rng.random() < likely if torn else whole:
                    kept[sector] = number
        content, full = bytearray(self.synced), bytearray(self.synced)
        for number, change in enumerate(self.pending):
            _do(full, change)
            if isinstance(change, Truncate):
                if number in cuts:
                    _do(content, change)
                continue
            for sector, offset, piece in change.sectors():
                if number <= kept.get(sector, -1):
                    _do(content, Write(offset, piece))
        if len(full) > len(content) and rng.random() < _GROWN:
            # The size has been kept, and not what was written there: nothing, or what somebody else had there.
            room = rng.randint(1, len(full) - len(content))
            content += rng.randbytes(room) if rng.random() < 0.5 else bytes(room)
        return content


class Disk:
    """One folder: names, and what is in the files."""

    def __init__(self) -> None:
        self._now: dict[str, Content] = {}
        self._synced: dict[str, Content] = {}
        self._changes: list[tuple[str, Content | None]] = []

    def open(self, name: str) -> Content:
        """Return what is in a file; it is made where there is none."""
        if name not in self._now:
            self._now[name] = Content()
            self._changes.append((name, self._now[name]))
        return self._now[name]

    def put(self, name: str, data: bytes) -> None:
        """Have a file that was there before the power came."""
        self._now[name] = self._synced[name] = Content(bytearray(data))

    def delete(self, name: str) -> None:
        """Take a name out of the folder, if it is there."""
        if self._now.pop(name, None) is not None:
            self._changes.append((name, None))

    def sync_names(self) -> None:
        """Keep the folder as it is."""
        self._synced = dict(self._now)
        self._changes.clear()

    def survive(self, rng: Random) -> dict[str, bytes]:
        """Return the files that are there after a cut, and what is in them."""
        there = dict(self._synced)
        for name in sorted({name for name, _ in self._changes}):
            changes = [content for changed, content in self._changes if changed == name]
            reached = rng.randint(0, len(changes))
            if reached:
                last = changes[reached - 1]
                there.pop(name, None)
                if last is not None:
                    there[name] = last
        return {name: bytes(content.survive(rng)) for name, content in sorted(there.items())}


def _do(content: bytearray, change: Write | Truncate) -> None:
    size = change.size if isinstance(change, Truncate) else change.offset
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if isinstance(change, Truncate):
        del content[size:]
    else:
        content[size : size + len(change.data)] = change.data
