"""`actors sessions`: what it says of a store, what it takes out and puts in, and what it refuses in one line."""

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
import trio
import trio.testing

from actors import ScriptedModel, open_agent
from actors.cli import main
from actors.cli.stores import data_folder
from actors.stores import SqliteStore
from actors.stores.lock import StoreLock
from actors.stores.reading import Reader
from actors.stores.records import Snapshot, Trim
from actors.stores.schema import VERSION
from actors.stores.writing import Writer
from protocol.history import fold
from protocol.stored import decode_record, encode_state

Damage = Callable[[str, str], None]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["sessions", *argv])
    out, err = capsys.readouterr()
    return code, out, err


# ---- looking


def test_a_list_has_a_line_for_each_session(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "--store", store)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["SESSION", "STATUS", "ASKS", "RECORDS", "LAST", "CHANGE"]
    assert [line[:3] for line in lines[1:]] == [
        ["alpha", "idle", "-"],
        ["beta", "waiting", "1"],
        ["gamma", "idle", "-"],
    ]
    assert max(map(len, out.splitlines())) < 80


def test_a_list_can_be_narrowed_cut_and_read_by_programs(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "list", "--store", store, "--status", "waiting", "--json")
    (session,) = [json.loads(line) for line in out.splitlines()]
    assert (session["session"], session["status"], session["open_asks"], session["damage"]) == (
        "beta",
        "waiting",
        1,
        "",
    )
    assert abs(datetime.fromisoformat(session["updated"]).timestamp() - Path(store).stat().st_mtime) < 3_600
    assert session["updated"].endswith("+00:00")
    code, out, err = run(capsys, "list", "--store", store, "--limit", "2")
    assert (code, len(out.splitlines()), err) == (0, 3, "there are more than 2; see --limit\n")
    assert run(capsys, "list", "--store", store, "--status", "damaged")[1] == "no sessions that are damaged\n"


def test_a_session_is_shown_as_a_client_would_show_it(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "alpha", "--store", store)
    assert code == 0
    lines = out.splitlines()
    assert lines[:2] == ["> Ship it.", "All **done**."]
    assert lines[-1].startswith("(idle, ")
    _, out, _ = run(capsys, "show", "beta", "--store", store)
    assert out.splitlines()[-2:-1] == ["? Which channel? [stable, beta] (open)"]
    assert "(waiting, " in out
    _, out, _ = run(capsys, "show", "alpha", "--store", store, "--json")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(1, len(out.splitlines()) + 1))


def test_of_a_session_whose_beginning_was_trimmed_the_rest_is_shown_and_moved(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = Reader(store), Writer(store)
    loaded = reader.load("alpha", from_snapshot=False)
    assert loaded is not None
    events = [decode_record(body) for body in loaded.bodies]
    kept = encode_state(fold(events[:-1]))
    writer.write([Snapshot("alpha", len(events) - 1, kept), Trim("alpha", len(events) - 1)])
    writer.close()
    reader.close()
    code, out, _ = run(capsys, "show", "alpha", "--store", store)
    assert (code, out.splitlines()[0]) == (0, f"· records before {len(events) - 1} are not kept")
    assert "> Ship it." in out
    assert f"\n(idle, {len(events)} records, last change " in out
    lines, other = str(tmp_path / "out.jsonl"), str(tmp_path / "other.db")
    assert run(capsys, "export", "alpha", "-o", lines, "--store", store)[0] == 0
    assert run(capsys, "import", lines, "--store", other)[0] == 0
    assert run(capsys, "show", "alpha", "--store", other)[:2] == (0, out)


def test_a_store_is_read_while_a_server_has_it(store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async def beside() -> list[int]:
        async with open_agent(ScriptedModel([]), store=SqliteStore(store)):
            return [
                main(["sessions", *argv, "--store", store])
                for argv in (
                    ["list"],
                    ["show", "alpha"],
                    ["export", "--all"],
                    ["doctor"],
                    ["backup", str(tmp_path / "b")],
                )
            ]

    assert trio.run(beside) == [0, 0, 0, 0, 0]
    capsys.readouterr()


# ---- forgetting


def test_sessions_are_deleted_for_good_and_only_when_that_is_meant(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert run(capsys, "delete", "alpha", "--store", store) == (2, "", "actors: deleting is for good: say --yes\n")
    assert run(capsys, "delete", "alpha", "nope", "--yes", "--store", store)[2] == (
        "actors: there is no session 'nope'; nothing was deleted\n"
    )
    assert run(capsys, "delete", "alpha", "alpha", "--yes", "--store", store) == (0, "deleted alpha\n", "")
    assert "alpha" not in run(capsys, "list", "--store", store)[1]


def test_no_answer_is_a_no(store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", nothing)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert run(capsys, "delete", "alpha", "--store", store)[:2] == (0, "\nnothing was deleted\n")


@pytest.mark.parametrize(("said", "deleted"), [("y", True), ("", False), ("no", False), ("YES", True)])
def test_on_a_terminal_it_asks_first(
    said: str, deleted: bool, store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(prompt: str) -> str:
        print(prompt)
        return said

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    code, out, _ = run(capsys, "delete", "alpha", "--store", store)
    assert (code, out.splitlines()) == (
        0, ["delete alpha for good? [y/N] ", "deleted alpha" if deleted else "nothing was deleted"],
    )  # fmt: skip


# ---- health


def test_a_sound_store_is_said_to_be_sound(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--store", store)
    assert code == 0
    assert out.startswith("3 sessions, ")
    assert out.endswith(" records, 0 blobs: all can be read\n")


def test_what_is_damaged_is_named_and_set_aside_and_the_rest_goes_on(
    store: str, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    damage(store, "alpha")
    code, out, _ = run(capsys, "doctor", "--store", store)
    assert code == 1
    assert "session alpha: record 2 of session 'alpha' is not what was written\n" in out
    assert ": 1 session cannot be read\n`actors sessions doctor --repair` keeps what cannot be read from being" in out
    code, _, err = run(capsys, "show", "alpha", "--store", store)
    assert (code, err) == (
        1,
        "actors: session 'alpha' is damaged: record 2 of session 'alpha' is not what was written\n",
    )
    assert run(capsys, "export", "alpha", "--store", store)[0] == 1
    code, out, _ = run(capsys, "doctor", "--repair", "--store", store)
    assert (code, out.splitlines()[-1]) == (
        1, "what cannot be read is kept as it is, and will not be opened; the rest is as before",
    )  # fmt: skip
    _, out, _ = run(capsys, "list", "--status", "damaged", "--store", store)
    assert out.splitlines()[1].split()[:2] == ["alpha", "damaged"]
    assert out.splitlines()[-1] == "alpha: record 2 of session 'alpha' is not what was written"
    assert run(capsys, "show", "gamma", "--store", store)[0] == 0


def test_damage_before_the_snapshot_is_told_by_show(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    connection = sqlite3.connect(store)
    connection.execute("UPDATE events SET crc = crc + 1 WHERE seq = 1")
    connection.commit()
    connection.close()
    for extra in ([], ["--json"]):
        code, out, err = run(capsys, "show", "alpha", "--store", store, *extra)
        assert (code, out) == (1, "")
        assert err == "actors: session 'alpha' is damaged: record 1 of session 'alpha' is not what was written\n"


def test_damage_of_the_file_itself_is_told_with_what_to_do(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def faults(self: Reader) -> list[str]:
        return ["wrong # of entries in index x"]

    monkeypatch.setattr(Reader, "integrity", faults)
    code, out, _ = run(capsys, "doctor", "--store", store)
    assert code == 1
    assert out.splitlines()[0] == "the file: wrong # of entries in index x"
    assert out.splitlines()[-2].startswith(
        "the file itself is damaged: stop its server, `actors sessions export --all`"
    )


# ---- what is refused


@pytest.mark.parametrize(
    "argv", [["list"], ["show", "s"], ["export", "--all"], ["delete", "s"], ["doctor"], ["backup", "f"]]
)
def test_a_store_that_is_not_there_is_a_wrong_argument(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err == f"actors: there is no store {tmp_path}/data/trio-actors/sessions.db; `actors serve` makes one\n"


def test_another_file_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.write_text("hello, this is no database")
    (tmp_path / "task.md").write_text("- Look around\n")
    for argv in (["sessions", "list"], ["serve", "--port", "0"], ["run", str(tmp_path / "task.md")]):
        assert main([*argv, "--store", str(other)]) == 2
        assert capsys.readouterr().err == f"actors: {other} is a file of another program\n"
        assert main([*argv, "--store", str(tmp_path)]) == 2
        assert capsys.readouterr().err == f"actors: store {tmp_path} is a folder, or something else that is no file\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "task.md"]


def test_a_store_of_a_later_version_is_refused_by_its_number(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for argv in (["list"], ["delete", "alpha", "--yes"], ["doctor", "--repair"]):
        code, _, err = run(capsys, *argv, "--store", store)
        assert (code, err) == (2, f"actors: {store} has layout 99; this version knows layouts up to {VERSION}\n")


def test_the_store_may_be_named_before_the_action(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--store", store, "list") == run(capsys, "list", "--store", store)


def test_a_session_that_is_not_there_is_a_wrong_argument(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("show", "export"):
        assert run(capsys, action, "nope", "--store", store) == (
            2, "", "actors: there is no session 'nope'; see `actors sessions list`\n"
        )  # fmt: skip
    assert run(capsys, "export", "--store", store)[0] == run(capsys, "export", "a", "--all", "--store", store)[0] == 2


def test_what_writes_is_refused_while_a_server_has_the_store(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "export", "beta", "-o", str(tmp_path / "in.jsonl"), "--store", store)
    damage(store, "beta")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)  # it is refused before it is asked about
    with StoreLock(Path(store + ".lock")):
        for argv in (
            ["delete", "alpha", "--yes"],
            ["delete", "alpha"],
            ["import", str(tmp_path / "in.jsonl")],
            ["doctor", "--repair"],
        ):
            code, _, err = run(capsys, *argv, "--store", store)
            assert (code, err) == (
                2, f"actors: store {store} is in use by process {os.getpid()}; stop that server, then try again\n"
            )  # fmt: skip


# ---- where it is


def test_data_is_where_this_system_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data_folder() == tmp_path / "data" / "trio-actors"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ann"))
    assert data_folder() == Path("/home/ann/.local/share/trio-actors")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data_folder() == Path("/home/ann/Library/Application Support/trio-actors")
