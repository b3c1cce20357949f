"""`actors attach` without a terminal: what it shows, and how it says that it cannot."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from actors.agent.agent import Agent
from actors.cli import main
from actors.cli.agents import default_agent
from actors.cli.files import write_token
from actors.client import connect
from actors.gateway import Gateway, open_gateway

TOKEN = "a-token-of-more-than-22-characters"


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[Agent, Gateway]]:
    async with default_agent() as agent, open_gateway(agent, token=TOKEN) as gateway:
        yield agent, gateway


class Attached:
    """The command in a process of its own; `out` is what it has written so far."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.out = ""

    async def wait_written(self, text: str) -> None:
        assert self.process.stdout is not None
        with trio.fail_after(30):
            while text not in self.out:
                data = await self.process.stdout.receive_some()
                assert data, f"ended without {text!r}: {self.out}"
                self.out += data.decode()

    async def end(self) -> tuple[int, str]:
        """Return the exit code and what was on stderr."""
        assert self.process.stderr is not None
        with trio.fail_after(30):
            err = b"".join([data async for data in self.process.stderr])
            return await self.process.wait(), err.decode()


@asynccontextmanager
async def attached(gateway: Gateway, token: str, *argv: str) -> AsyncGenerator[Attached]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "actors", "attach", gateway.url, *argv, "--token-file", token],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONUTF8": "1"},
    )  # fmt: skip
    try:
        yield Attached(process)
    finally:
        process.kill()
        with trio.move_on_after(5, shield=True):
            await process.wait()


async def prompt(gateway: Gateway, text: str) -> None:
    async with connect(gateway.url, TOKEN) as connection:
        await connection.call("session/prompt", session="s", text=text)


async def test_a_session_is_shown_with_its_history_and_left_without_a_trace(token: str) -> None:
    async with served() as (agent, gateway):
        await agent.run("- one", session_id="s")
        async with attached(gateway, token, "s") as command:
            await command.wait_written("1 step done")
            await prompt(gateway, "- Which?")
            await command.wait_written("? Which? (open)")
            command.process.send_signal(signal.SIGINT)
            assert await command.end() == (0, "")
            assert [session.open_asks for session in agent.open_sessions()[0]] == [1]


async def test_a_session_that_does_not_exist_is_made_only_when_asked_for(token: str) -> None:
    async with served() as (agent, gateway):
        async with attached(gateway, token, "s") as command:
            assert await command.end() == (1, "actors: the server has no session 's'; --create makes it\n")
        assert agent.open_sessions() == ([], False)
        async with attached(gateway, token, "s", "--create") as command:
            await command.wait_written("(attached, idle)")
            await prompt(gateway, "- one")
            await command.wait_written("completed")


async def test_a_file_answers_also_there_and_the_end_of_the_server_is_said(token: str, tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text('{"Which?": "that one"}')
    async with served() as (agent, gateway):
        await agent.open("s")
        async with attached(gateway, token, "s", "--answers", str(tmp_path / "answers.json")) as command:
            await command.wait_written("(attached, idle)")
            await prompt(gateway, "- Which?")
            await command.wait_written("completed")
            assert "? Which?\n  that one\n" in command.out
            await gateway.drain(1012)
            assert await command.end() == (
                1, "actors: the server is restarting; attach again when it is back\n"
            )  # fmt: skip


@pytest.fixture
def token(tmp_path: Path) -> str:
    write_token(tmp_path / "token", TOKEN)
    return str(tmp_path / "token")


def test_a_token_is_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("ACTORS_TOKEN", raising=False)
    assert main(["attach", "ws://127.0.0.1:1", "s"]) == 2
    assert capsys.readouterr().err == (
        "actors: attach needs a token: --token-file FILE, or the variable ACTORS_TOKEN\n"
    )
    monkeypatch.setenv("ACTORS_TOKEN", "größer")
    assert main(["attach", "ws://127.0.0.1:1", "s"]) == 2
    assert capsys.readouterr().err == "actors: the variable ACTORS_TOKEN does not hold a token\n"


def test_a_wrong_address_is_a_wrong_argument(token: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "http://127.0.0.1:1", "s", "--token-file", token]) == 2
    assert capsys.readouterr().err == "actors: the address must be a URL that begins with ws:// or wss://\n"


def test_nobody_there_is_said_in_one_line(token: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "ws://127.0.0.1:1", "s", "--token-file", token]) == 1
    assert capsys.readouterr().err == "actors: cannot connect to ws://127.0.0.1:1/ws: Connection refused\n"
