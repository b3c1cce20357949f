"""A real server is killed with -9 while real clients work with it, and everything is as it was said to be.

`python -m tests.faults.kill_server` plays more of the same. The controls show that it would find what it is there for.
"""

import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path

import trio

from actors.client.connection import Attachment, Connection, LinkClosed, connect
from protocol import events as ev
from tests.faults.kill_process import LifeProcess, open_launcher
from tests.faults.kill_server import TOKEN, Score, Siege, play
from tests.faults.kill_town import Town
from tests.faults.kill_view import Command, View

CYCLES = int(os.environ.get("SERVER_KILLS", "30"))
CONVERSATIONS = 100
GUARD_S = 60.0


async def test_a_server_that_is_killed_at_any_moment_loses_repeats_and_leaves_out_nothing_b07_b39(
    tmp_path: Path,
) -> None:
    score = await play(tmp_path, cycles=CYCLES, clients=8, seed=1)
    assert not score.findings.counts, "\n".join([score.line(), *score.findings.texts])
    wanted = {
        "prompt acknowledged", "answer acknowledged", "cancel acknowledged", "steer acknowledged", "cold starts",
        "RunResumed", "RunCompleted", "RunCancelled", "RunQueued", "AskSettled answered", "AskSettled declined",
        "ToolFailed call.interrupted", "TodosChanged", "SteeringStarted", "attached tail", "attached snapshot", "terms",
    }  # fmt: skip
    assert wanted <= score.counts.keys() or CYCLES < 30, f"these never happened: {sorted(wanted - score.counts.keys())}"
    assert score.counts["acknowledged"] >= CYCLES, score.line()


# ---- a hundred conversations


@dataclass
class Talk:
    """One conversation.

    Attributes:
        view: What its client has seen.
        prompt, answer: What its client has said.
        asked: The ask that it waits at.
    """

    view: View
    prompt: Command
    answer: Command | None = None
    asked: ev.AskOpened | None = None


async def _until(view: View, attachment: Attachment, kind: type[ev.Event]) -> ev.Event:
    async for event in attachment:
        view.take(event)
        if isinstance(event, kind):
            return event
    raise AssertionError("an attachment ends with an error")


async def _attach(connection: Connection, view: View) -> Attachment:
    view.opened(await connection.call("session/open", session=view.session))
    attachment = await connection.attach(view.session, log_id=view.log_id, cursor=view.cursor)
    view.attached(attachment.log_id, attachment.mode, attachment.cursor, attachment.snapshot)
    return attachment


async def _send(connection: Connection, command: Command, town: Town) -> None:
    result = await connection.call(
        f"session/{command.method}", session=command.session, command=command.id, **command.params
    )
    command.acknowledged(result, town.findings)


async def _come_to_the_question(talk: Talk, town: Town, asked: list[Talk], all_asked: trio.Event) -> None:
    try:
        async with connect(town.url, TOKEN) as connection:
            attachment = await _attach(connection, talk.view)
            await _send(connection, talk.prompt, town)
            event = await _until(talk.view, attachment, ev.AskOpened)
            assert isinstance(event, ev.AskOpened)
            talk.asked = event
            asked.append(talk)
            if len(asked) == CONVERSATIONS:
                all_asked.set()
            while True:
                talk.view.take(await attachment.receive())
    except LinkClosed:
        pass  # it was killed


async def _go_on_to_the_end(talk: Talk, town: Town) -> None:
    before = talk.asked
    assert before is not None
    async with connect(town.url, TOKEN) as connection:
        attachment = await _attach(connection, talk.view)
        assert attachment.mode == "tail", "it goes on where it was"
        await _until(talk.view, attachment, ev.RunResumed)
        shown = talk.view.show((await connection.call("session/state", session=talk.view.session))["snapshot"])
        assert shown.asks == (before.ask,), "the same question is open, under the same id"
        assert shown.status == "waiting"
        text = f"said in {talk.view.session}"
        params = {"ask": before.ask.tool_call_id, "answer": text}
        talk.answer = Command(f"answer of {talk.view.session}", talk.view.session, "answer", params, text)
        await _send(connection, talk.answer, town)
        await _send(connection, talk.answer, town)
        await _until(talk.view, attachment, ev.RunCompleted)


async def _ready(siege: Siege, process: LifeProcess) -> None:
    await process.ready.wait()
    siege.town.new_life(f"ws://127.0.0.1:{process.port}/ws")


async def test_a_hundred_conversations_with_open_questions_go_on_after_a_kill_b06_b07_b43(tmp_path: Path) -> None:
    score = Score()
    with trio.fail_after(GUARD_S):
        async with open_launcher(tmp_path / "errors") as launcher:
            siege = Siege(tmp_path, launcher, score, clients=CONVERSATIONS, draw=random.Random(1))
            town, talks = siege.town, list[Talk]()
            for client in siege.clients:
                session, view = next(iter(client.views.items()))
                text = f"{session} toa|o"
                prompt = Command(f"prompt of {session}", session, "prompt", {"text": text}, text)
                talks.append(Talk(view, prompt))
            process = await launcher.start(siege.life)
            await _ready(siege, process)
            asked, all_asked = list[Talk](), trio.Event()
            async with trio.open_nursery() as nursery:
                for talk in talks:
                    nursery.start_soon(_come_to_the_question, talk, town, asked, all_asked)
                await all_asked.wait()
                process.kill()
            await process.ended.wait()
            process = await launcher.start(siege.life)
            await _ready(siege, process)
            async with trio.open_nursery() as nursery:
                for talk in talks:
                    nursery.start_soon(_go_on_to_the_end, talk, town)
            process.kill(signal.SIGTERM)
            await process.ended.wait()
            town.commands += [talk.prompt for talk in talks] + [talk.answer for talk in talks if talk.answer]
            await siege.check()
    assert not score.findings.counts, "\n".join(score.findings.texts)
    assert score.counts["RunCompleted"] == score.counts["RunResumed"] == CONVERSATIONS
    assert score.counts["AskOpened"] == score.counts["AskSettled answered"] == CONVERSATIONS
    assert (tmp_path / "errors").read_text() == ""


# ---- the controls: a planted fault must be found, or nothing is proved


async def test_a_store_that_acknowledges_too_early_is_found(tmp_path: Path) -> None:
    score = await play(tmp_path, cycles=12, clients=8, seed=2, hasty_s=0.02)
    assert score.findings.counts["lost"], score.line()
    assert score.counts["cycles"] < 12, "it is found within a few cycles"


async def test_a_tool_that_is_run_again_is_found(tmp_path: Path) -> None:
    score = await play(tmp_path, cycles=12, clients=8, seed=3, careless=True)
    assert score.findings.counts.keys() == {"tool twice"}, "\n".join([score.line(), *score.findings.texts])
