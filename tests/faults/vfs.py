"""SQLite's door to the disk, with faults: the power goes, a process is killed, or one call fails.

The files are real ones in a folder, so that everybody who has them open sees the same, as with a page cache; syncs go
to a `Disk` alone, which says what is left of them after a cut. What SQLite's own door promises is promised here: the
first sync of a journal or of a write-ahead log also syncs the folder, a delete only where it is asked to. The memory
that connections share is SQLite's own. It must not know what is in the files, or who writes them.
"""

# What apsw says of bytes has a name that Python 3.11 does not have.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, NamedTuple

import apsw

from tests.faults.disk import Disk, Truncate, Write

_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL


class Fault(Enum):
    """What happens at one call."""

    EIO = "EIO"
    ENOSPC = "ENOSPC"
    SHORT = "short write"
    #: The power goes, or the process ends, while this call is made; from then on every call fails.
    OUT = "out"


class Call(NamedTuple):
    """One call of SQLite, or of somebody who shares the disk with it; they are counted from 1 on."""

    number: int
    operation: str
    file: str


#: By the call that fails: what SQLite's own door would return.
_CODES = {
    "open": apsw.SQLITE_CANTOPEN,
    "delete": apsw.SQLITE_IOERR_DELETE,
    "access": apsw.SQLITE_IOERR_ACCESS,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "size": apsw.SQLITE_IOERR_FSTAT,
    "lock": apsw.SQLITE_IOERR_LOCK,
    "unlock": apsw.SQLITE_IOERR_UNLOCK,
    "close": apsw.SQLITE_IOERR_CLOSE,
}


def never(call: Call) -> Fault | None:
    """Nothing fails."""
    return None


class FaultyVFS(apsw.VFS):
    """In use from when it is made until `unregister`.

    Attributes:
        name: For connections.
        calls: How many were made.
        out: Nothing works any more.
        struck: The last call at which something happened.
    """

    def __init__(self, name: str, disk: Disk, strikes: Callable[[Call], Fault | None], rng: Random) -> None:
        """Register it.

        Args:
            name: Not that of another one.
            disk: Told of everything that is done.
            strikes: Says whether a call fails, and how; asked before each.
            rng: Says what a sync that fails has kept.
        """
        self.name = name
        self.disk = disk
        self.rng = rng
        self.calls = 0
        self.out = False
        self.struck: Call | None = None
        self._strikes = strikes
        super().__init__(name, "")

    def step(self, operation: str, file: str) -> Fault | None:
        """Count a call and return what happens at it; if anything does, the caller raises `error` in the end.

        Raises:
            apsw.Error: Everything is out.
        """
        if self.out:
            raise error(operation, Fault.OUT)
        self.calls += 1
        call = Call(self.calls, operation, file)
        fault = self._strikes(call)
        if fault is not None:
            self.struck = call
            self.out = fault is Fault.OUT
        return fault

    def check(self, operation: str, file: str) -> None:
        """Count a call that changes nothing on the disk.

        Raises:
            apsw.Error: It fails.
        """
        fault = self.step(operation, file)
        if fault is not None:
            raise error(operation, fault)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        assert path is not None, "a file without a name is on no disk"
        self.check("open", Path(path).name)
        return _File(self, name, Path(path).name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        name = Path(filename).name
        fault = self.step("delete", name)
        if fault in (None, Fault.OUT):
            self.disk.delete(name)
        if fault is not None:
            raise error("delete", fault)
        super().xDelete(filename, syncdir)
        if syncdir:
            self.disk.sync_names()

    def xAccess(self, pathname: str, flags: int) -> bool:
        self.check("access", Path(pathname).name)
        return super().xAccess(pathname, flags)

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        """Say nothing: these are the faults that were asked for, where SQLite does not look."""
        return True


class _File(apsw.VFSFile):
    def __init__(self, vfs: FaultyVFS, name: str | apsw.URIFilename | None, short: str, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._vfs = vfs
        self._name = short
        self._content = vfs.disk.open(short)
        self._sync_names = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _JOURNALS)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._vfs.check("read", self._name)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        fault = self._vfs.step("write", self._name)
        written = bytes(data)
        if fault is Fault.SHORT:
            written = written[: len(written) // 2]
        if fault in (None, Fault.OUT, Fault.SHORT):
            self._content.pending.append(Write(offset, written))
        if fault in (None, Fault.SHORT):
            super().xWrite(written, offset)
        if fault is not None:
            raise error("write", fault)

    def xTruncate(self, newsize: int) -> None:
        fault = self._vfs.step("truncate", self._name)
        if fault in (None, Fault.OUT):
            self._content.pending.append(Truncate(newsize))
        if fault is not None:
            raise error("truncate", fault)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        fault = self._vfs.step("sync", self._name)
        if fault is not None:
            if fault is not Fault.OUT:
                self._content.fail_to_sync(self._vfs.rng)
            raise error("sync", fault)
        self._content.sync()
        if self._sync_names:
            self._vfs.disk.sync_names()
            self._sync_names = False

    def xFileSize(self) -> int:
        self._vfs.check("size", self._name)
        return super().xFileSize()

    def xLock(self, level: int) -> None:
        self._vfs.check("lock", self._name)
        super().xLock(level)

    def xUnlock(self, level: int) -> None:
        super().xUnlock(level)  # a process that ended holds no locks
        self._vfs.check("unlock", self._name)

    def xClose(self) -> None:
        super().xClose()
        self._vfs.check("close", self._name)

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        return True


def error(operation: str, fault: Fault) -> Exception:
    """Return what SQLite is told. A write for which there is no room, or only half of it, is a full disk."""
    full = operation in ("write", "truncate", "sync") and fault in (Fault.ENOSPC, Fault.SHORT)
    return apsw.exception_for(apsw.SQLITE_FULL if full else _CODES[operation])
