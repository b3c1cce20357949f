"""A session leaves one store and enters another as it was, or not at all."""

import io
import json
from pathlib import Path

import pytest

from actors.agent.ports import StoreError
from actors.stores.jsonl import export_session, import_session
from actors.stores.reading import Reader
from actors.stores.writing import Writer
from protocol.history import fold
from tests.actors.stores.keeping import Writing, custom, golden, sqlite_store


async def exported(path: Path, *, trim: int = 0) -> tuple[Writing, bytes]:
    async with sqlite_store(path) as store:
        session = Writing(store, "s-42")
        events = golden()
        store.create("s-42", events[0].log_id)  # type: ignore[attr-defined]
        session.append(*events)
        if trim:
            store.save_snapshot("s-42", session.state)
            store.trim("s-42", trim)
        store.put_blob("s-42", b"\x00binary\xff")
        session.append(*custom(0, 0))
        await session.wait_kept()
        await store.load("s-42")
        reader, file = Reader(path), io.BytesIO()
        assert export_session(reader, "s-42", file) == len(session.log) - max(0, trim - 1)
        reader.close()
    return session, file.getvalue()


def imported(path: Path, lines: bytes) -> str:
    writer = Writer(path)
    try:
        return import_session(writer, io.BytesIO(lines))
    finally:
        writer.close()


@pytest.mark.parametrize("trim", [0, 10])
async def test_a_session_is_the_same_in_the_other_store(tmp_path: Path, trim: int) -> None:
    session, lines = await exported(tmp_path / "a.db", trim=trim)
    assert imported(tmp_path / "b.db", lines) == "s-42"
    async with sqlite_store(tmp_path / "b.db") as store:
        loaded = await store.load("s-42")
        assert loaded is not None
        assert (loaded.log_id, loaded.first) == (session.state.log_id, trim or 1)
        assert fold(loaded.events, loaded.snapshot) == session.state
        kept = await store.read("s-42", after=max(0, trim - 1), limit=1_000)
        assert list(kept) == session.log[max(0, trim - 1) :]
        reader, file = Reader(tmp_path / "b.db"), io.BytesIO()
        export_session(reader, "s-42", file)
        reader.close()
        assert file.getvalue() == lines
        session.store, session.errors = store, []
        session.append(*custom(0))  # it goes on
        await session.wait_kept()


async def test_a_name_that_is_there_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    _, lines = await exported(tmp_path / "a.db")
    imported(tmp_path / "b.db", lines)
    before = (tmp_path / "b.db").read_bytes()
    with pytest.raises(StoreError, match=r"^store\.failed: nothing was imported: session 's-42' has a log already$"):
        imported(tmp_path / "b.db", lines)
    assert (tmp_path / "b.db").read_bytes() == before


def change(lines: bytes, number: int, line: bytes | None) -> bytes:
    split = lines.splitlines()
    split[number - 1 : number] = [] if line is None else [line]
    return b"\n".join(split)


@pytest.mark.parametrize(
    ("number", "line", "why"),
    [
        (1, b"{}", "line 1 does not begin an exported session: Object missing required field `export`"),
        (1, b'{"export":2,"session":"s-42","log_id":"x"}', "the export has format 2; this version knows format 1"),
        (1, b'{"export":1,"session":"s","log_id":"x"}', "the records are of session 's-42', line 1 says 's'"),
        (1, b'{"export":1,"session":"s-42","log_id":"x","first":3}',
         "line 1: records before 3 are missing, and no snapshot covers them"),
        (2, b'{"blob":"00","data":"AAAA"}', "line 2: blob 00 is not what was exported"),
        (5, None, "session 's-42': record 3 is missing, record 4 is in its place"),
        (5, b"nonsense", "line 5: a record is no event: JSON is malformed"),
        (5, b'{"type":"run_completed","run":"r9","seq":3}',
         "session 's-42' does not fold: record 3 ends run 'r9', which is neither active nor queued"),
    ],
)  # fmt: skip
async def test_lines_that_are_no_session_are_refused_by_their_place(
    tmp_path: Path, number: int, line: bytes | None, why: str
) -> None:
    _, lines = await exported(tmp_path / "a.db")
    with pytest.raises(StoreError) as refused:
        imported(tmp_path / "b.db", change(lines, number, line))
    assert str(refused.value).startswith(f"store.failed: {why}")
    reader = Reader(tmp_path / "b.db")
    assert list(reader.sessions()) == []
    reader.close()


def test_an_export_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"^store\.failed: the export of session 's' has no records$"):
        imported(tmp_path / "b.db", b'{"export":1,"session":"s","log_id":"x"}\n\n')
    with pytest.raises(StoreError, match=r"^store\.failed: line 1 does not begin an exported session: "):
        imported(tmp_path / "b.db", b"")


async def test_a_snapshot_ahead_of_its_records_is_refused(tmp_path: Path) -> None:
    _, lines = await exported(tmp_path / "a.db", trim=10)
    head = json.loads(lines.splitlines()[0])
    head["snapshot"]["state"]["seq"] = 1_000
    with pytest.raises(StoreError, match=r"the snapshot is of record 1000, which is missing$"):
        imported(tmp_path / "b.db", change(lines, 1, json.dumps(head).encode()))


async def test_what_is_not_there_or_damaged_is_not_exported(tmp_path: Path) -> None:
    await exported(tmp_path / "a.db")
    reader = Reader(tmp_path / "a.db")
    with pytest.raises(StoreError, match=r"^store\.failed: session 'none' is not in the store$"):
        export_session(reader, "none", io.BytesIO())
    reader.close()
    writer = Writer(tmp_path / "a.db")
    writer._connection.execute("UPDATE events SET crc = crc + 1 WHERE seq = 7")
    writer.close()
    reader = Reader(tmp_path / "a.db")
    with pytest.raises(StoreError, match=r"^store\.damaged: record 7 of session 's-42' is not what was written$"):
        export_session(reader, "s-42", io.BytesIO())
    reader.close()
