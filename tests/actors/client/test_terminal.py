"""A real pseudo terminal: what a person sees and types, and that every way out puts its modes back."""

import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest
import trio
from rich.console import Console

from actors.client import connect
from actors.client.blocks import Ended
from actors.client.terminal import Terminal, key_mode
from actors.client.watch import Watch

Serve = Callable[[Callable[[Any], Awaitable[None]]], AbstractAsyncContextManager[str]]


class Pty:
    """Both ends of a pseudo terminal; `screen` is everything that was written to it so far."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        os.set_blocking(self.master, False)
        self.modes = termios.tcgetattr(self.slave)
        self.file = open(self.slave, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        self.raw = ""

    @property
    def screen(self) -> str:
        try:
            while True:
                self.raw += os.read(self.master, 65_536).decode(errors="replace")
        except OSError:
            pass
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def wait_shown(self, text: str, *, after: str = "") -> None:
        """Wait until `text` is on the screen, behind the last `after`."""
        with trio.fail_after(5):
            while text not in self.screen.rpartition(after or "\0")[2]:
                await trio.lowlevel.wait_readable(self.master)

    def close(self) -> None:
        for close in (self.file.close, lambda: os.close(self.master), lambda: os.close(self.slave)):
            with suppress(OSError):
                close()


@pytest.fixture
def pty() -> Iterator[Pty]:
    made = Pty()
    yield made
    made.close()


async def show(pty: Pty, url: str, **options: Any) -> tuple[Watch, Ended | None]:
    console = Console(
        file=pty.file, width=60, height=24, force_terminal=True, highlight=False, _environ={"TERM": "xterm"}
    )
    with trio.fail_after(10):
        async with connect(url) as connection:
            attachment = await connection.attach("s")
            watch = Watch(connection, attachment, **{"once": True, "person": True, **options})
            return watch, await Terminal(watch, console, pty.slave).run()


def event(body: dict[str, Any]) -> dict[str, Any]:
    return {"method": "event", "params": {"session": "s", "log_id": "l1", "event": {"time": 1.0, "run": "r1", **body}}}


STARTED = {"type": "run_started", "seq": 1, "run": "r1", "time": 1.0, "input": {"role": "user", "content": "go"}}
COMPLETED = {"type": "run_completed", "turns": 1}


def opened(seq: int, number: int, question: str) -> dict[str, Any]:
    options = [{"label": "stable"}, {"label": "beta"}]
    asked = {"id": f"a{number}", "tool_call_id": f"c{number}", "questions": [
        {"id": "q1", "question": question, "options": options}
    ]}  # fmt: skip
    return {"type": "ask_opened", "seq": seq, "run": "r1", "time": 1.0, "ask": asked}


def settled(seq: int, number: int, outcome: str, **fields: Any) -> dict[str, Any]:
    settled = {"type": "ask_settled", "seq": seq, "ask": f"a{number}", "tool_call_id": f"c{number}", "outcome": outcome}
    return event({**settled, **fields})


async def test_a_question_is_shown_and_a_digit_answers_it(serve: Serve, pty: Pty) -> None:
    calls: list[Any] = []

    async def served(peer: Any) -> None:
        await peer.attached(STARTED, opened(2, 1, "Which channel?"))
        await pty.wait_shown("Which channel?")
        pty.type("2\r")
        calls.append(await peer.answer(settled(3, 1, "answered", payload={"answer": "beta"})))
        await peer.send(event({**COMPLETED, "seq": 4}))
        await peer.ignore()

    async with serve(served) as url:
        watch, ended = await show(pty, url)
    assert ended == Ended("completed", "r1", turns=1)
    assert calls[0]["params"]["answer"] == "beta"
    assert "  2  beta" in pty.screen
    assert "? Which channel?\r\n  beta" in pty.screen
    assert watch.aborted is False
    assert termios.tcgetattr(pty.slave) == pty.modes
    assert pty.raw.rindex("\x1b[?2004l") > pty.raw.rindex("\x1b[?2004h")
    assert pty.raw.rindex("\x1b[?25h") > pty.raw.rindex("\x1b[?25l")


async def test_a_line_that_is_not_understood_stays_to_be_corrected(serve: Serve, pty: Pty) -> None:
    calls: list[Any] = []

    async def served(peer: Any) -> None:
        await peer.attached(STARTED, opened(2, 1, "Which channel?"))
        await pty.wait_shown("Which channel?")
        pty.type("7\r")
        await pty.wait_shown("there is no option 7")
        pty.type("\x7f1\r")
        calls.append(await peer.answer(settled(3, 1, "answered"), event({**COMPLETED, "seq": 4})))
        await peer.ignore()

    async with serve(served) as url:
        await show(pty, url)
    assert calls[0]["params"]["answer"] == "stable"


async def test_escape_twice_declines_and_once_only_says_so(serve: Serve, pty: Pty) -> None:
    calls: list[Any] = []

    async def served(peer: Any) -> None:
        await peer.attached(STARTED, opened(2, 1, "Which channel?"))
        await pty.wait_shown("Which channel?")
        pty.type("half")
        await pty.wait_shown("half▏")
        pty.type("\x1b")
        await pty.wait_shown("› ▏", after="half▏")
        pty.type("\x1b")
        await pty.wait_shown("Esc again leaves this question without an answer")
        pty.type("\x1b")
        calls.append(await peer.answer(settled(3, 1, "declined"), event({**COMPLETED, "seq": 4})))
        await peer.ignore()

    async with serve(served) as url:
        await show(pty, url)
    assert calls[0]["params"]["outcome"] == "declined"


async def test_a_question_answered_elsewhere_takes_the_half_typed_answer_with_it_b24(serve: Serve, pty: Pty) -> None:
    calls: list[Any] = []

    async def served(peer: Any) -> None:
        await peer.attached(STARTED, opened(2, 1, "First?"), opened(3, 2, "Second?"))
        await pty.wait_shown("First?")
        pty.type("for the first")
        await pty.wait_shown("for the first▏")
        await peer.send(settled(4, 1, "answered", payload={"answer": "elsewhere"}))
        await pty.wait_shown("the question changed while you typed")
        pty.type("for the second\r")
        calls.append(await peer.answer(settled(5, 2, "answered"), event({**COMPLETED, "seq": 6})))
        await peer.ignore()

    async with serve(served) as url:
        await show(pty, url)
    assert (calls[0]["params"]["ask"], calls[0]["params"]["answer"]) == ("c2", "for the second")


async def test_a_refused_answer_is_told_and_asked_for_again(serve: Serve, pty: Pty) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(STARTED, opened(2, 1, "Which channel?"))
        await pty.wait_shown("Which channel?")
        pty.type("x\r")
        call = await peer.read()
        error = {"code": -32000, "message": "only the options may be chosen", "data": {"code": "ask.invalid"}}
        await peer.send({"id": call["id"], "error": error})
        await pty.wait_shown("only the options may be chosen")
        pty.type("1\r")
        await peer.answer(settled(3, 1, "answered"), event({**COMPLETED, "seq": 4}))
        await peer.ignore()

    async with serve(served) as url:
        _, ended = await show(pty, url)
    assert ended is not None


async def test_streamed_text_is_live_and_the_finished_message_stays(serve: Serve, pty: Pty) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(STARTED)
        await peer.send(event({"type": "text_delta", "message": "r1.1", "offset": 0, "text": "Work in progr"}))
        await pty.wait_shown("Work in progr")
        message = {"role": "assistant", "content": "# All *done*\x1b[2J"}
        done = {"type": "model_completed", "seq": 2, "message_id": "r1.1", "turn": 1, "message": message}
        await peer.send(event(done))
        await peer.send(event({**COMPLETED, "seq": 3}))
        await peer.ignore()

    async with serve(served) as url:
        await show(pty, url)
    assert "All done␛[2J" in pty.screen
    assert "\x1b[2J" not in pty.raw


async def test_without_a_run_a_line_prompts_and_end_of_input_detaches(serve: Serve, pty: Pty) -> None:
    calls: list[Any] = []

    async def served(peer: Any) -> None:
        await peer.attached()
        await pty.wait_shown("type a prompt")
        pty.type("hello\r")
        calls.append(await peer.answer())
        pty.type("\x04")
        await peer.ignore()

    async with serve(served) as url:
        watch, ended = await show(pty, url, once=False)
    assert (watch.aborted, ended) == (False, None)
    assert (calls[0]["method"], calls[0]["params"]["text"]) == ("session/prompt", "hello")


async def test_coming_back_from_the_shell_sets_the_modes_again(serve: Serve, pty: Pty) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(STARTED)
        await pty.wait_shown("type to steer")
        termios.tcsetattr(pty.slave, termios.TCSANOW, pty.modes)
        signal.raise_signal(signal.SIGCONT)
        with trio.fail_after(5):
            while pty.raw.count("\x1b[?2004h") < 2:
                await trio.lowlevel.wait_readable(pty.master)
                assert pty.screen
        assert not termios.tcgetattr(pty.slave)[3] & termios.ICANON
        await peer.send(event({**COMPLETED, "seq": 2}))
        await peer.ignore()

    async with serve(served) as url:
        await show(pty, url)
    assert termios.tcgetattr(pty.slave) == pty.modes


async def test_an_error_puts_the_modes_back_too(serve: Serve, pty: Pty) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(STARTED)
        await pty.wait_shown("type to steer")
        await peer.socket.aclose(1012, "back soon")

    async with serve(served) as url:
        with pytest.raises(Exception, match="1012"):
            await show(pty, url)
    assert termios.tcgetattr(pty.slave) == pty.modes


async def test_a_terminal_that_goes_away_leaves_at_once(serve: Serve, pty: Pty) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(STARTED)
        await pty.wait_shown("type to steer")
        os.close(pty.master)
        await peer.ignore()

    aborts: list[str] = []
    async with serve(served) as url:
        watch, _ = await show(pty, url, on_abort=lambda: aborts.append("abort"))
    assert (watch.aborted, aborts) == (True, ["abort"])


def test_the_modes_are_put_back_when_the_block_raises(pty: Pty) -> None:
    with pytest.raises(KeyboardInterrupt):
        with key_mode(pty.slave, pty.slave):
            assert not termios.tcgetattr(pty.slave)[3] & (termios.ICANON | termios.ECHO)
            raise KeyboardInterrupt
    assert termios.tcgetattr(pty.slave) == pty.modes
