"""Whether everything in a store can be read. Blocking; changes nothing, and may run while somebody writes."""

import sqlite3
from dataclasses import dataclass, field

from actors.stores.reading import Reader
from actors.stores.records import Damaged
from protocol.errors import LocalProtocolError
from protocol.history import State, fold
from protocol.stored import decode_record, decode_state

_PAGE = 500


@dataclass(slots=True)
class Report:
    """What was looked at and what was found.

    Attributes:
        sessions, records, blobs: How many were read.
        file: What SQLite finds wrong with the file itself.
        damaged: What is wrong, by session; the first fault of each.
    """

    sessions: int = 0
    records: int = 0
    blobs: int = 0
    file: list[str] = field(default_factory=list[str])
    damaged: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def sound(self) -> bool:
        return not self.file and not self.damaged


def check_store(reader: Reader) -> Report:
    """Read every record, snapshot and blob; decode and fold what was read. A session is looked at as of one moment.

    Raises:
        sqlite3.Error: The file cannot be read at all.
    """
    report = Report(file=_integrity(reader))
    after = ""
    while page := reader.sessions(after=after, limit=_PAGE):
        for session in page:
            after = session.id
            report.sessions += 1
            try:
                if session.damage:
                    raise Damaged(session.id, session.damage, lasting=False)
                _check_session(reader, session.id, report)
            except Damaged as damaged:
                report.damaged[session.id] = str(damaged)
            except (LocalProtocolError, KeyError, IndexError) as error:
                report.damaged[session.id] = f"it does not fold: {error}"
            except sqlite3.OperationalError:
                raise  # of the disk, or of a lock: nothing is known of this session
            except sqlite3.DatabaseError as error:
                report.damaged[session.id] = f"pages of the file that it is in cannot be read: {error}"
    return report


def _integrity(reader: Reader) -> list[str]:
    try:
        return reader.integrity()
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:  # it gives up where it cannot read on; sessions may be elsewhere
        return [str(error)]


def _check_session(reader: Reader, session: str, report: Report) -> None:
    loaded = reader.load(session)
    if loaded is None:
        return  # deleted since
    state = None if loaded.snapshot is None else decode_state(loaded.snapshot)
    if loaded.snapshot is None or state is not None:
        fold((decode_record(body) for body in loaded.bodies), state or State())
    whole = reader.load(session, from_snapshot=False)
    bodies = loaded.bodies if whole is None else whole.bodies
    for body in bodies:
        decode_record(body)
    report.records += len(bodies)
    for name in reader.blob_names(session):
        reader.blob(session, name)
        report.blobs += 1
