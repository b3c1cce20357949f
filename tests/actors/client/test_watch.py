"""Following a session: who answers, what Ctrl-C does, and how it ends, against a server on a real socket."""

import io
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio

from actors.client import Detached, LinkClosed, connect
from actors.client.answers import parse_answers
from actors.client.blocks import Ended
from actors.client.plain import Plain
from actors.client.watch import Watch

Serve = Callable[[Callable[[Any], Awaitable[None]]], AbstractAsyncContextManager[str]]


def event(body: dict[str, Any]) -> dict[str, Any]:
    return {"method": "event", "params": {"session": "s", "log_id": "l1", "event": {"time": 1.0, "run": "r1", **body}}}


def ask(number: int, question: str = "Which?") -> dict[str, Any]:
    questions = [{"id": "q1", "question": question, "options": [{"label": "a"}, {"label": "b"}]}]
    return {"id": f"a{number}", "tool_call_id": f"c{number}", "questions": questions}


def started(seq: int = 1) -> dict[str, Any]:
    return {"type": "run_started", "seq": seq, "run": "r1", "time": 1.0, "input": {"role": "user", "content": "go"}}


def opened(seq: int, number: int, question: str = "Which?") -> dict[str, Any]:
    return {"type": "ask_opened", "seq": seq, "run": "r1", "time": 1.0, "ask": ask(number, question)}


def settled(seq: int, number: int, outcome: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "ask_settled", "seq": seq, "ask": f"a{number}", "tool_call_id": f"c{number}", "outcome": outcome,
        **fields,
    }  # fmt: skip


def completed(seq: int) -> dict[str, Any]:
    return event({"type": "run_completed", "seq": seq, "turns": 1})


def cancelled(seq: int, reason: str) -> dict[str, Any]:
    return event({"type": "run_cancelled", "seq": seq, "turns": 1, "reason": reason})


class Out(io.StringIO):
    """Text that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._written = trio.Event()

    def write(self, text: str) -> int:
        self._written.set()
        return super().write(text)

    async def wait_written(self, text: str = "> go") -> None:
        with trio.fail_after(5):
            while text not in self.getvalue():
                self._written = trio.Event()
                await self._written.wait()


async def follow(url: str, out: io.StringIO, **options: Any) -> tuple[Watch, Ended | None]:
    with trio.fail_after(10):
        async with connect(url) as connection:
            attachment = await connection.attach("s")
            watch = Watch(connection, attachment, **{"once": True, "person": False, **options})
            return watch, await Plain(watch, out).run()


async def test_a_run_is_written_line_by_line_until_it_ends(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(started())
        await peer.send(event({"type": "tool_started", "seq": 2, "tool_call_id": "c1", "name": "dig"}))
        result = {"role": "tool", "tool_call_id": "c1", "name": "dig", "content": "a hole"}
        await peer.send(event({"type": "tool_completed", "seq": 3, "result": result}), completed(4))
        await peer.ignore()

    out = io.StringIO()
    async with serve(served) as url:
        watch, ended = await follow(url, out)
    assert ended == Ended("completed", "r1", turns=1)
    assert (watch.unanswered, watch.aborted) == ("", False)
    assert out.getvalue() == "> go\n* dig: a hole\nx completed · 1 turn\n"


async def test_a_file_answers_and_null_in_it_declines(serve: Serve) -> None:
    calls: list[Any] = []

    async def served(peer: Any) -> None:
        await peer.attached(started(), opened(2, 1, "One?"), opened(3, 2, "Two?"))
        for seq, number, outcome in ((4, 1, "answered"), (5, 2, "declined")):
            calls.append((await peer.answer(event(settled(seq, number, outcome))))["params"])
        await peer.send(completed(6))
        await peer.ignore()

    async with serve(served) as url:
        _, ended = await follow(url, io.StringIO(), answers=parse_answers('{"Two?": null, "One?": "b"}'))
    assert ended is not None
    assert ended.kind == "completed"
    commands = [call.pop("command") for call in calls]
    assert len(set(commands)) == 2
    assert sorted(calls, key=lambda call: call["ask"]) == [
        {"session": "s", "ask": "c1", "answer": "b"},
        {"session": "s", "ask": "c2", "outcome": "declined"},
    ]


async def test_a_question_that_nobody_can_answer_ends_our_own_run_at_once(serve: Serve) -> None:
    calls: list[Any] = []

    async def served(peer: Any) -> None:
        await peer.attached(started(), opened(2, 1), opened(3, 2))
        calls.append(await peer.answer())
        closed = [event(settled(3 + number, number, "cancelled")) for number in (1, 2)]
        await peer.send(*closed, cancelled(6, "no_responder"))
        await peer.ignore()

    async with serve(served) as url:
        watch, ended = await follow(url, io.StringIO())
    assert watch.unanswered == "Which?"
    assert ended is not None
    assert (ended.kind, ended.message) == ("cancelled", "no_responder")
    assert [(call["method"], call["params"]["reason"]) for call in calls] == [("session/cancel", "no_responder")]


async def test_an_answer_in_the_file_that_the_server_refuses_is_no_answer(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(started(), opened(2, 1))
        call = await peer.read()
        error = {"code": -32000, "message": "one answer is wanted, not 2", "data": {"code": "ask.invalid"}}
        await peer.send({"id": call["id"], "error": error})
        await peer.answer(cancelled(3, "no_responder"))
        await peer.ignore()

    async with serve(served) as url:
        watch, _ = await follow(url, io.StringIO(), answers=parse_answers('[["a", "b"]]'))
    assert watch.unanswered == "Which? (one answer is wanted, not 2)"


async def test_a_question_that_was_settled_meanwhile_is_not_unanswered_b20(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(started(), opened(2, 1))
        call = await peer.read()
        error = {"code": -32000, "message": "it timed out", "data": {"code": "ask.settled"}}
        await peer.send({"id": call["id"], "error": error}, event(settled(3, 1, "timed_out")), completed(4))
        await peer.ignore()

    out = io.StringIO()
    async with serve(served) as url:
        watch, ended = await follow(url, out, answers=parse_answers('["a"]'))
    assert ended is not None
    assert (watch.unanswered, ended.kind) == ("", "completed")
    lines = out.getvalue().splitlines()
    lines.remove("(it timed out)")  # the refusal and the events come to two tasks, in either order
    assert lines == ["> go", "? Which?", "  (timed out)", "x completed · 1 turn"]


async def test_somebody_elses_question_is_shown_and_left_to_them(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        snapshot = {"seq": 4, "status": "waiting", "run": {"id": "r1"}, "asks": [ask(1)]}
        await peer.attached(seq=4, snapshot=snapshot)
        await peer.send(event(settled(5, 1, "answered", payload={"answer": "b"})))
        await peer.send({"method": "detached", "params": {"session": "s", "code": "session.closed", "seq": 5}})
        await peer.ignore()

    out = io.StringIO()
    async with serve(served) as url:
        with pytest.raises(Detached, match=r"session\.closed$"):
            await follow(url, out, once=False)
    assert out.getvalue() == "? Which? [a, b] (open)\n(attached, waiting)\n? Which?\n  b\n"


async def test_the_first_interrupt_cancels_our_run_and_waits_for_its_end(serve: Serve) -> None:
    calls: list[Any] = []

    out = Out()

    async def served(peer: Any) -> None:
        await peer.attached(started())
        await out.wait_written()
        signal.raise_signal(signal.SIGINT)
        calls.append(await peer.answer(event({"type": "cancel_requested", "seq": 2}), cancelled(3, "interrupted")))
        await peer.ignore()

    async with serve(served) as url:
        watch, ended = await follow(url, out)
    assert ended is not None
    assert (ended.kind, watch.aborted) == ("cancelled", False)
    assert [call["method"] for call in calls] == ["session/cancel"]
    assert "(cancelling…)\n" in out.getvalue()


@pytest.mark.parametrize("numbers", [[signal.SIGINT] * 2, [signal.SIGTERM] * 2, [signal.SIGHUP]])
async def test_a_second_interrupt_or_a_lost_terminal_leaves_at_once(serve: Serve, numbers: list[int]) -> None:
    out = Out()

    async def served(peer: Any) -> None:
        await peer.attached(started())
        await out.wait_written()
        for number in numbers:
            signal.raise_signal(number)
            if number != signal.SIGHUP:
                await out.wait_written("cancelling")
        await peer.ignore()

    aborts: list[str] = []
    async with serve(served) as url:
        watch, ended = await follow(url, out, on_abort=lambda: aborts.append("abort"))
    assert (watch.aborted, ended, aborts) == (True, None, ["abort"])


async def test_an_interrupt_leaves_somebody_elses_session_alone(serve: Serve) -> None:
    out = Out()

    async def served(peer: Any) -> None:
        await peer.attached(started())
        await out.wait_written()
        signal.raise_signal(signal.SIGINT)
        await peer.ignore()

    async with serve(served) as url:
        watch, ended = await follow(url, out, once=False)
    assert (watch.aborted, ended) == (False, None)


async def test_a_cancel_that_comes_too_late_is_no_complaint(serve: Serve) -> None:
    out = Out()

    async def served(peer: Any) -> None:
        await peer.attached(started())
        await out.wait_written()
        signal.raise_signal(signal.SIGINT)
        call = await peer.read()
        error = {"code": -32000, "message": "nothing runs", "data": {"code": "session.idle"}}
        await peer.send({"id": call["id"], "error": error}, completed(2))
        await peer.ignore()

    async with serve(served) as url:
        _, ended = await follow(url, out)
    assert ended is not None
    assert ended.kind == "completed"
    assert "nothing runs" not in out.getvalue()


async def test_a_snapshot_that_cannot_be_read_is_told_as_that(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(snapshot={"messages": 5})
        await peer.ignore()

    async with serve(served) as url:
        with pytest.raises(LinkClosed, match=r"^the connection ended \(1002\): the server sent a snapshot that"):
            await follow(url, io.StringIO())


async def test_a_connection_that_ends_is_the_error_of_the_watch(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(started())
        await peer.socket.aclose(1012, "back soon")

    async with serve(served) as url:
        with pytest.raises(LinkClosed, match="1012"):
            await follow(url, io.StringIO())
