"""`actors serve`: who may reach it, where the token is, and that a signal ends it in time."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from actors.cli import main
from actors.cli.arguments import Options
from actors.cli.codes import CommandFailed
from actors.cli.files import write_token
from actors.cli.serve import check_address, is_loopback, token_file
from actors.client import LinkClosed, connect
from protocol.events import AskOpened

TOKEN = "a-token-of-more-than-22-characters"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("", False), ("192.168.1.2", False), ("example.org", False), ("localhost.example.org", False)],
)  # fmt: skip
def test_only_loopback_is_out_of_reach_of_others(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_being_reachable_by_others_must_be_asked_for_in_full() -> None:
    with pytest.raises(CommandFailed, match=r"^listening on 192\.168\.1\.2 lets others connect; name the token they"):
        check_address(Options(command="serve", host="192.168.1.2"))
    check_address(Options(command="serve", host="192.168.1.2", token_file="t"))
    with pytest.raises(CommandFailed, match=r"^listening on every address needs the name clients use: --allow-host"):
        check_address(Options(command="serve", host="0.0.0.0", token_file="t"))
    check_address(Options(command="serve", host="0.0.0.0", token_file="t", allow_host=("example.org",)))


def test_a_token_nobody_named_is_private_and_goes_with_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with token_file("") as (path, token):
        assert path.is_relative_to(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (path.read_text(), len(token) >= 22) == (token + "\n", True)
    assert list(tmp_path.iterdir()) == []


def test_a_named_token_is_made_once_and_kept(tmp_path: Path) -> None:
    name = str(tmp_path / "token")
    with token_file(name) as (_, made):
        pass
    with token_file(name) as (path, read):
        assert (read, path) == (made, tmp_path / "token")


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    write_token(tmp_path / "token", "secret")
    with pytest.raises(CommandFailed, match=r"22-512 characters, this one has 6$"), token_file(str(tmp_path / "token")):
        pass


class Server:
    """The command in a process of its own."""

    def __init__(self, token: Path, *argv: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "actors", "serve", "--port", "0", "--token-file", str(token), *argv],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().removeprefix("serving ")
        self.second_line = self.process.stdout.readline().strip()

    def end(self, number: int) -> tuple[int, float, str]:
        """Send a signal; return exit code, seconds until the end, and what was on stderr."""
        before = time.monotonic()
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, time.monotonic() - before, err


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_token(tmp_path / "token", TOKEN)
    made = Server(tmp_path / "token")
    yield made
    made.process.kill()
    made.process.communicate()


async def test_sigterm_tells_clients_to_come_back_and_ends_within_five_seconds_d26(
    server: Server, tmp_path: Path
) -> None:
    assert server.second_line == f"token file {tmp_path / 'token'}"
    async with connect(server.url, TOKEN) as connection:
        opened = await connection.call("session/open")
        attachment = await connection.attach(opened["session"])
        await connection.call("session/prompt", session=opened["session"], text="- Which?")
        async for event in attachment:
            if type(event).__name__ == "AskOpened":
                break
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(LinkClosed) as closed:
            while True:
                await attachment.receive()
        assert closed.value.close_code == 1012
    _, err = server.process.communicate(timeout=5)
    assert (server.process.returncode, err) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_every_signal_that_ends_a_server_ends_it_in_order(server: Server, number: int) -> None:
    code, seconds, err = server.end(number)
    assert (code, err) == (0, "")
    assert seconds < 5


def test_a_port_that_is_taken_is_said_in_one_line(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.url.rpartition(":")[2].removesuffix("/ws")
    assert main(["serve", "--port", port, "--token-file", str(tmp_path / "token"), "--store", "memory"]) == 1
    assert capsys.readouterr().err == f"actors: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_name_that_is_none_is_a_wrong_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_token(tmp_path / "token", TOKEN)
    assert main(["serve", "--port", "0", "--token-file", str(tmp_path / "token"), "--allow-host", "a b"]) == 2
    assert capsys.readouterr().err.startswith("actors: a host is `name` or `name:port`")


# ---- what it keeps


async def answer_after_restart(again: Server, ask: str, log_id: str, cursor: int) -> list[str]:
    """Attach where the view ended, answer the question; return the types of what comes."""
    async with connect(again.url, TOKEN) as connection:
        attachment = await connection.attach("s", log_id=log_id, cursor=cursor)
        assert attachment.mode == "tail"
        seen: list[str] = []
        async for event in attachment:
            seen.append(type(event).__name__)
            if seen[-1] == "RunResumed":
                await connection.call("session/answer", session="s", ask=ask, payload={"answer": "beta"}, command="c")
            if seen[-1] == "RunCompleted":
                return seen
    raise AssertionError(seen)


async def test_a_question_that_is_open_when_the_server_is_stopped_is_open_when_it_is_back(
    server: Server, tmp_path: Path
) -> None:
    assert server.process.stdout is not None
    assert server.process.stdout.readline() == f"store {tmp_path / 'data' / 'trio-actors' / 'sessions.db'}\n"
    async with connect(server.url, TOKEN) as connection:
        await connection.call("session/open", session="s")
        attachment = await connection.attach("s")
        await connection.call("session/prompt", session="s", text="- Which?\n  - stable\n  - beta")
        ask = ""
        async for event in attachment:
            if isinstance(event, AskOpened):
                ask = event.ask.tool_call_id
                break
    code, _, err = server.end(signal.SIGTERM)
    assert (code, err) == (0, "")
    again = Server(tmp_path / "token")
    try:
        seen = await answer_after_restart(again, ask, attachment.log_id, attachment.cursor)
        assert seen.count("AskOpened") == 0
        assert seen.count("AskSettled") == 1
    finally:
        again.end(signal.SIGTERM)


def test_a_server_says_how_many_sessions_wait(server: Server, tmp_path: Path) -> None:
    async def ask() -> None:
        async with connect(server.url, TOKEN) as connection:
            await connection.call("session/open", session="s")
            attachment = await connection.attach("s")
            await connection.call("session/prompt", session="s", text="- Which?\n")
            async for event in attachment:
                if isinstance(event, AskOpened):
                    return

    trio.run(ask)
    server.process.send_signal(signal.SIGTERM)
    out, err = server.process.communicate(timeout=30)
    path = tmp_path / "data" / "trio-actors" / "sessions.db"
    assert (out.splitlines()[-1], err) == (f"1 session waits in {path}", "")


def test_a_second_server_on_a_store_is_refused_by_the_process_that_has_it(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0"]) == 2
    path = tmp_path / "data" / "trio-actors" / "sessions.db"
    assert capsys.readouterr().err == (
        f"actors: store {path} is in use by process {server.process.pid}; a store has one owner at a time\n"
    )


@pytest.mark.parametrize("argv", [["--store", "x.db"], ["--resume", "never"], ["--idle", "5"]])
def test_what_an_agent_of_the_user_cannot_be_told_is_refused(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", "--agent", "time:monotonic", *argv]) == 2
    name = {"--store": "store", "--resume": "resume", "--idle": "idle_s"}[argv[0]]
    assert capsys.readouterr().err == f"actors: {argv[0]}: time:monotonic has no parameter {name!r} to be told by\n"


@pytest.mark.parametrize("idle", ["0", "-1", "soon", "nan"])
def test_seconds_that_are_none_are_a_wrong_argument(idle: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--idle", idle])
    assert ended.value.code == 2
    assert f"a number of seconds above 0 is wanted, not {idle!r}" in capsys.readouterr().err


def test_a_store_in_a_folder_that_is_not_there_is_a_wrong_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "s.db"
    assert main(["serve", "--port", "0", "--store", str(path)]) == 2
    assert capsys.readouterr().err == f"actors: store {path}: there is no folder {path.parent}\n"
