"""A session behind nothing but `trio.open_memory_channel`: the "gateway" is a task and a few plain channels."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from actors import Agent, ExternalEvent, RuleViolation, ToolMessage
from protocol import commands as cmd
from protocol import events as ev
from protocol.errors import Code
from tests.scenarios.staging import staged


class ChannelReader:
    """A reader that passes on what it is told through a plain channel, and is cut off where that is full."""

    def __init__(self, channel: trio.MemorySendChannel[ev.Event]) -> None:
        self.channel = channel
        self.ended: tuple[Code, int] | None = None

    def offer(self, event: ev.Event) -> bool:
        try:
            self.channel.send_nowait(event)
        except trio.WouldBlock:
            return False
        return True

    def closed(self, code: Code, seq: int) -> None:
        self.ended = code, seq
        self.channel.close()


@dataclass
class Plain:
    """The far end of the channels.

    Attributes:
        agent: The agent behind them.
        commands: What the session is to do.
        replies: What comes of it, in the order of the commands.
        events: What the session tells.
        external: Events of the application.
        reader: What feeds `events`.
    """

    agent: Agent
    commands: trio.MemorySendChannel[cmd.Params]
    replies: trio.MemoryReceiveChannel[Any]
    events: trio.MemoryReceiveChannel[ev.Event]
    external: trio.MemorySendChannel[ExternalEvent]
    reader: ChannelReader

    async def do(self, command: cmd.Params) -> Any:
        """Send a command and return what came of it, a refusal too."""
        await self.commands.send(command)
        return await self.replies.receive()

    async def until(self, *kinds: type[ev.Event]) -> list[ev.Event]:
        """Take events up to one of these kinds, and return all that were taken."""
        taken: list[ev.Event] = []
        async for event in self.events:
            taken.append(event)
            if isinstance(event, kinds):
                return taken
        raise AssertionError(f"the session ended without {kinds}")

    async def until_asked(self, count: int) -> None:
        for _ in range(count):
            await self.until(ev.AskOpened)

    async def answer(self, call: str, answer: str) -> None:
        """Send the event that answers, and return when the session has looked at it."""
        payload = {"tool_call_id": call, "answer": answer}
        await self.external.send(ExternalEvent("ask_user_response", payload))
        await wait_all_tasks_blocked()

    @property
    def open(self) -> list[str]:
        return [one.tool_call_id for one in self.agent.session("s").asks]

    @property
    def answers(self) -> dict[str, str]:
        results = (m for m in self.agent.session("s").history if isinstance(m, ToolMessage))
        return {m.tool_call_id: json.loads(m.content)["answer"] for m in results if m.success}


@asynccontextmanager
async def plain(*turns: Any, **options: Any) -> AsyncGenerator[Plain]:
    """Open session `s` of an agent that plays `turns`, connected with plain channels only."""
    commands, to_do = trio.open_memory_channel[cmd.Params](0)
    done, replies = trio.open_memory_channel[Any](100)
    told, events = trio.open_memory_channel[ev.Event](1_000)
    external, heard = trio.open_memory_channel[ExternalEvent](0)
    reader = ChannelReader(told)
    async with staged(turns, **options) as agent:
        await agent.open("s")
        await agent.attach(heard, session_id="s")
        handle = agent.session("s")

        async def pump() -> None:
            with to_do:
                async for command in to_do:
                    attaching = reader if isinstance(command, cmd.Attach) else None
                    try:
                        await handle.submit(command, done.send_nowait, reader=attaching)
                    except RuleViolation as refused:
                        done.send_nowait(refused)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump)
            with commands, replies, events, external, done, told:
                channels = Plain(agent, commands, replies, events, external, reader)
                assert (await channels.do(cmd.Attach(session="s"))).mode == "snapshot"
                yield channels
                await handle.wait_idle()
                commands.close()  # the pump ends by itself
                external.close()  # and so does the session's
                await wait_all_tasks_blocked()
                assert not nursery.child_tasks, "the pump of the commands is left"
                session = agent.find("s")
                if session is not None:
                    session.detach(reader)
                    assert heard.statistics().open_receive_channels == 0, "the pump of the events is left"
