"""Large texts of records and snapshots: in the file once, whole for whoever reads, gone with the last that has them."""

import io
import json
import sqlite3
from pathlib import Path

import pytest

from actors.agent.ports import StoreError
from actors.stores.jsonl import export_session, import_session
from actors.stores.reading import Reader
from actors.stores.records import Append, Trim
from actors.stores.writing import Writer
from protocol import events as ev
from protocol.blobs import blob_name
from protocol.chat import AssistantMessage, ImagePart, ToolCall, ToolMessage, UserMessage
from protocol.history import fold
from protocol.limits import Limits
from tests.actors.stores.keeping import Writing, custom, sqlite_store

IMAGE = "data:image/png;base64," + "iVBORw0K" * 500
RESULT = json.dumps({"rows": ["findme-text"] * 500})
LIMITS = Limits(blob_bytes=1_000)


def talk() -> list[ev.Event]:
    """A run with an image in its prompt, and a large result."""
    asked = UserMessage("look at this", (ImagePart(IMAGE), ImagePart(IMAGE)))
    return [
        ev.RunStarted(asked, 10, run="r2"),
        ev.MessageAdded(asked, input=True, run="r2"),
        ev.ModelCompleted("m1", 1, AssistantMessage(tool_calls=(ToolCall("c1", "query"),)), run="r2"),
        ev.ToolStarted("c1", "query", run="r2"),
        ev.ToolCompleted(ToolMessage("c1", "query", RESULT), run="r2"),
    ]


async def kept(path: Path, **options: object) -> Writing:
    async with sqlite_store(path, limits=LIMITS, **options) as store:
        session = Writing(store).begin()
        session.append(*talk())
        store.save_snapshot("s", session.state)
        session.append(ev.MessageAdded(UserMessage("again", (ImagePart(IMAGE),))), *custom(0))
        await session.wait_kept()
    return session


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


async def test_a_large_text_is_in_the_file_once_and_comes_back_whole(tmp_path: Path) -> None:
    session = await kept(tmp_path / "s.db")
    found = rows(tmp_path / "s.db", "SELECT hash, data, part FROM blobs ORDER BY length(data)")
    assert found == [(blob_name(text.encode()), text.encode(), 1) for text in (IMAGE, RESULT)]
    bodies = "SELECT body FROM events UNION ALL SELECT body FROM snapshots"
    ((longest,),) = rows(tmp_path / "s.db", f"SELECT max(length(body)) FROM ({bodies})")
    assert isinstance(longest, int) and longest < 2_000, "a text is in a record as well"
    async with sqlite_store(tmp_path / "s.db") as store:
        loaded = await store.load("s")
        assert loaded is not None and loaded.snapshot is not None
        assert fold(loaded.events, loaded.snapshot) == session.state
        assert list(await store.read("s", after=0, limit=100)) == session.log
        assert await store.get_blob("s", blob_name(IMAGE.encode())) == IMAGE.encode()


async def test_a_text_at_the_limit_stays_in_its_record(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        session = Writing(store).begin()
        session.append(ev.Custom("x", {"text": "y" * 65_536}))
        await session.wait_kept()
        assert rows(tmp_path / "s.db", "SELECT count(*) FROM blobs") == [(0,)]
        session.append(ev.Custom("x", {"text": "y" * 65_537}))
        await session.wait_kept()
        assert rows(tmp_path / "s.db", "SELECT length(data) FROM blobs") == [(65_537,)]


async def test_a_text_goes_with_the_last_record_and_snapshot_that_has_it(tmp_path: Path) -> None:
    archive = tmp_path / "old.jsonl"
    async with sqlite_store(tmp_path / "s.db", limits=LIMITS, archive=archive) as store:
        session = Writing(store).begin()
        session.append(*talk())
        store.put_blob("s", RESULT.encode())  # somebody wants this one by itself
        store.save_snapshot("s", session.state)
        store.trim("s", 7)
        loaded = await store.load("s")
        assert loaded is not None and loaded.first == 6 and fold(loaded.events, loaded.snapshot) == session.state
        assert rows(tmp_path / "s.db", "SELECT count(*) FROM blobs") == [(2,)], "the snapshot has them"
        session.append(ev.HistoryReplaced((UserMessage("in short"),)), ev.RunCompleted(run="r2"))
        store.save_snapshot("s", session.state)
        store.trim("s", 8)
        assert await store.get_blob("s", blob_name(IMAGE.encode())) is None
        assert await store.get_blob("s", blob_name(RESULT.encode())) == RESULT.encode()
        loaded = await store.load("s")
        assert loaded is not None and fold(loaded.events, loaded.snapshot) == session.state
    records = [json.loads(line)["record"] for line in archive.read_text().splitlines()]
    assert [record["seq"] for record in records] == [1, 2, 3, 4, 5, 6, 7]
    assert records[1]["input"]["parts"][1]["url"] == IMAGE, "the archive stands by itself"


async def test_a_session_takes_its_large_texts_with_it(tmp_path: Path) -> None:
    session = await kept(tmp_path / "a.db")
    reader, file = Reader(tmp_path / "a.db"), io.BytesIO()
    assert export_session(reader, "s", file) == len(session.log)
    reader.close()
    assert not any(line.startswith((b'{"blob"', b"[")) for line in file.getvalue().splitlines())
    writer = Writer(tmp_path / "b.db")
    import_session(writer, io.BytesIO(file.getvalue()))
    writer.close()
    async with sqlite_store(tmp_path / "b.db") as store:
        assert list(await store.read("s", after=0, limit=100)) == session.log
        assert await store.delete("s")
    assert rows(tmp_path / "b.db", "SELECT count(*) FROM blobs") == [(0,)]


async def test_a_large_text_that_is_damaged_is_found_and_only_its_session_concerned(tmp_path: Path) -> None:
    await kept(tmp_path / "s.db")
    name = blob_name(RESULT.encode())
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("UPDATE blobs SET data = x'00' WHERE hash = ?", (name,))
    connection.commit()
    connection.close()
    async with sqlite_store(tmp_path / "s.db") as store:
        with pytest.raises(StoreError, match=rf"^store\.damaged: blob {name} of session 's' is not what was written$"):
            await store.load("s")
        Writing(store, "other").begin()
        assert await store.load("other") is not None


@pytest.mark.parametrize("read", ["the records", "the session"])
async def test_a_large_text_that_is_missing_is_found_and_names_its_record(read: str, tmp_path: Path) -> None:
    await kept(tmp_path / "s.db")
    name = blob_name(RESULT.encode())
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("DELETE FROM blobs WHERE hash = ?", (name,))
    connection.commit()
    connection.close()
    what = f"of session 's': blob {name}, which is part of it, is missing$"
    async with sqlite_store(tmp_path / "s.db") as store:
        if read == "the records":
            with pytest.raises(StoreError, match=rf"^store\.damaged: record 6 {what}"):
                await store.read("s", after=0, limit=100)
        else:
            with pytest.raises(StoreError, match=rf"^store\.damaged: the snapshot at record 6 {what}"):
                await store.load("s")


def test_a_damaged_record_goes_to_the_archive_as_it_is_and_keeps_the_texts(tmp_path: Path) -> None:
    archive = tmp_path / "old.jsonl"
    writer = Writer(tmp_path / "s.db", archive=archive)
    damaged = [b'[[[["name"],"00"]],{"type":"custom","name":"","seq":1}]', b"[1]", b'{"type":"custom","seq":3}']
    writer.write([Append("s", 0, damaged, 1.0, log_id="s", texts={"11": b"x"})])
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("INSERT INTO snapshots VALUES (1, 3, 0, ?)", (b"[",))
    connection.commit()
    connection.close()
    writer.write([Trim("s", 3)])
    writer.close()
    lines = archive.read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == [json.loads(body) for body in damaged[:2]]
    assert rows(tmp_path / "s.db", "SELECT hash FROM blobs") == [("11",)], "the snapshot cannot say what it needs"
