"""`actors sessions`: what it says of a store, what it takes out and puts in, and what it refuses in one line."""

import io
import json
import os
import sqlite3
import stat
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from actors import ScriptedModel, open_agent
from actors.cli import main
from actors.cli.stores import data_folder
from actors.models.scripted import call, say
from actors.stores import SqliteStore
from actors.stores.lock import StoreLock


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with three sessions: done, with an open question, and an empty one."""
    path = tmp_path / "store.db"
    os.environ["TZ"] = "UTC"

    async def fill() -> None:
        from actors import AskUserExtension

        ask = call("ask_user", {"question": "Which channel?", "options": ["stable", "beta"]})
        model = ScriptedModel([say("All **done**."), ask])
        async with open_agent(model, extensions=[AskUserExtension()], store=SqliteStore(path)) as agent:
            await agent.run("Ship it.", session_id="alpha")
            handle = agent.session("beta")
            await handle.prompt("Ask me.")
            await trio.testing.wait_all_tasks_blocked()
            await agent.open_session("gamma")

    trio.run(fill)
    return str(path)


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


# ---- out and in


def test_what_is_exported_is_imported_as_it_was(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = str(tmp_path / "all.jsonl")
    code, _, err = run(capsys, "export", "--all", "-o", lines, "--store", store)
    assert (code, err.startswith("3 sessions, ")) == (0, True)
    other = str(tmp_path / "other.db")
    assert run(capsys, "import", lines, "--store", other)[:2] == (0, "imported alpha, beta, gamma\n")
    assert stat.S_IMODE(Path(other).stat().st_mode) == 0o600
    for argv in (["list"], ["show", "beta"], ["show", "alpha", "--json"]):
        assert run(capsys, *argv, "--store", other) == run(capsys, *argv, "--store", store)
    code, _, err = run(capsys, "import", lines, "--store", other)
    assert code == 2
    assert err.startswith(f"actors: {lines}: nothing was imported: session 'alpha' ")


def test_an_export_goes_through_a_pipe(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["sessions", "export", "alpha", "--store", store]) == 0
    out, _ = capfdbinary.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out)))
    assert main(["sessions", "import", "-", "--store", str(tmp_path / "other.db")]) == 0


@pytest.mark.parametrize(
    ("content", "begins"),
    [
        (b"", ": line 1 does not begin an exported session: "),
        (b'{"x', ": line 1 does not begin an exported session: "),
        (b'{"export":2,"session":"s","log_id":"l"}\n', ": the export has format 2; this version knows format 1"),
        (b'{"export":1,"session":"s","log_id":"l"}\n', ": the export of session 's' has no records"),
        (b'{"export":1,"session":"s","log_id":"l"}\nnonsense\n', ": line 2: "),
    ],
)
def test_a_broken_file_is_refused_by_its_line(
    content: bytes, begins: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    code, out, err = run(capsys, "import", str(tmp_path / "in.jsonl"), "--store", str(tmp_path / "other.db"))
    assert (code, out) == (2, "")
    assert err.startswith(f"actors: {tmp_path / 'in.jsonl'}{begins}")
    assert err.count("\n") == 1


def test_of_several_sessions_the_broken_one_is_named(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "all.jsonl"
    run(capsys, "export", "alpha", "gamma", "-o", str(lines), "--store", store)
    content = lines.read_bytes().splitlines(keepends=True)
    lines.write_bytes(b"".join(content[:-1]) + b"nonsense\n")
    code, _, err = run(capsys, "import", str(lines), "--store", str(tmp_path / "other.db"))
    assert code == 2
    begin = 1 + next(number for number, line in enumerate(content) if number and line.startswith(b'{"export"'))
    assert err.startswith(f"actors: {lines}, which begins in line {begin}: line ")
    assert err.endswith("; imported before it: alpha\n")


def test_a_backup_is_a_store_of_its_own_and_overwrites_nothing(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = str(tmp_path / "copy.db")
    assert run(capsys, "backup", copy, "--store", store) == (0, f"{store} is copied to {copy}\n", "")
    assert run(capsys, "list", "--store", copy) == run(capsys, "list", "--store", store)
    assert stat.S_IMODE(Path(copy).stat().st_mode) == 0o600
    assert run(capsys, "backup", copy, "--store", store)[0] == 2
    missing = str(tmp_path / "none" / "copy.db")
    assert run(capsys, "backup", missing, "--store", store)[2] == (
        f"actors: cannot write {missing}: No such file or directory\n"
    )


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


@pytest.mark.parametrize(("said", "deleted"), [("y", True), ("", False), ("no", False), ("YES", True)])
def test_on_a_terminal_it_asks_first(
    said: str, deleted: bool, store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: print(prompt) or said)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    code, out, _ = run(capsys, "delete", "alpha", "--store", store)
    assert (code, out.splitlines()) == (
        0, ["delete alpha for good? [y/N] ", "deleted alpha" if deleted else "nothing was deleted"],
    )  # fmt: skip


# ---- health


def damage(store: str, session: str) -> None:
    connection = sqlite3.connect(store)
    (key,) = connection.execute("SELECT id FROM sessions WHERE name = ?", (session,)).fetchone()
    connection.execute("UPDATE events SET body = x'7b7d' WHERE session = ? AND seq = 2", (key,))
    connection.execute("DELETE FROM snapshots WHERE session = ?", (key,))
    connection.commit()
    connection.close()


def test_a_sound_store_is_said_to_be_sound(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--store", store)
    assert code == 0
    assert out.startswith("3 sessions, ")
    assert out.endswith(" records, 0 blobs: all can be read\n")


def test_what_is_damaged_is_named_and_set_aside_and_the_rest_goes_on(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(store, "alpha")
    code, out, _ = run(capsys, "doctor", "--store", store)
    assert code == 1
    assert "session alpha: record 2 of session 'alpha' is not what was written\n" in out
    assert "1 sessions are damaged\n`actors sessions doctor --repair` keeps them from being opened" in out
    code, _, err = run(capsys, "show", "alpha", "--store", store)
    assert (code, err) == (
        1,
        "actors: session 'alpha' is damaged: record 2 of session 'alpha' is not what was written\n",
    )
    assert run(capsys, "export", "--all", "--store", store)[0] == 1
    code, out, _ = run(capsys, "doctor", "--repair", "--store", store)
    assert (code, out.splitlines()[-1]) == (1, "they are kept as they are and not opened; the others are as before")
    _, out, _ = run(capsys, "list", "--status", "damaged", "--store", store)
    assert out.splitlines()[1].split()[:2] == ["alpha", "damaged"]
    assert out.splitlines()[-1] == "alpha: record 2 of session 'alpha' is not what was written"
    assert run(capsys, "show", "gamma", "--store", store)[0] == 0


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
    (tmp_path / "other").write_text("hello, this is no database")
    code, _, err = run(capsys, "list", "--store", str(tmp_path / "other"))
    assert (code, err) == (2, f"actors: {tmp_path / 'other'} is a file of another program\n")


def test_a_session_that_is_not_there_is_a_wrong_argument(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("show", "export"):
        assert run(capsys, action, "nope", "--store", store) == (
            2, "", "actors: there is no session 'nope'; see `actors sessions list`\n"
        )  # fmt: skip
    assert run(capsys, "export", "--store", store)[0] == run(capsys, "export", "a", "--all", "--store", store)[0] == 2


def test_what_writes_is_refused_while_a_server_has_the_store(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text('{"export":1}')
    damage(store, "beta")
    with StoreLock(Path(store + ".lock")):
        for argv in (["delete", "alpha", "--yes"], ["import", str(tmp_path / "in.jsonl")], ["doctor", "--repair"]):
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
