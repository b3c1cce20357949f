"""Sessions outlive their process: cut off at any record of a run with questions and tools, they go on from there.

A store is cut as by a power failure: from one record on nothing is kept and nothing acknowledged. Then the process of
the agent ends, by an error through everything or by a cancel of everything, and another one opens the same store.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors import Agent, AgentRunContext, AskUserExtension, ScriptedModel, TodoWriteExtension, open_agent, tool
from actors.models.scripted import call, say
from protocol import events as ev
from protocol.chat import AssistantMessage, ToolMessage
from protocol.errors import Code, RuleViolation
from protocol.history import fold
from protocol.limits import Limits
from tests.faults.invariants import check_answers, check_history, check_log
from tests.scenarios.lives import KINDS, Crash, Disk, Power
from tests.scenarios.staging import DEADLOCK_S, ask, write


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Disk(request.param, tmp_path)


class World:
    """What is outside of the agent's process.

    Attributes:
        effects: What tools did, with the idempotency key they did it under.
        given: The answers that were acknowledged.
    """

    def __init__(self) -> None:
        self.effects: list[tuple[str, str]] = []
        self.given: dict[str, str] = {}

    def tools(self) -> list[Any]:
        @tool
        async def once(context: AgentRunContext, n: int) -> str:
            """Do what must not be done twice."""
            self.effects.append((f"once {n}", context.idempotency_key))
            await trio.sleep(2)
            return f"done {n}"

        @tool(retry="safe")
        def safely(context: AgentRunContext, n: int) -> str:
            """Do what may be done again, from a thread."""
            self.effects.append((f"safely {n}", context.idempotency_key))
            return f"done {n}"

        return [once, safely]

    async def be_a_person(self, agent: Agent) -> None:
        """Answer what is open, three seconds later, until the process ends."""
        while True:
            await trio.sleep(3)
            for one in agent.session("s").asks:
                text = f"about {one.tool_call_id}, {len(self.given)}"
                try:
                    await agent.session("s").answer(one.tool_call_id, text)
                except RuleViolation as error:
                    if error.code not in (Code.SESSION_CLOSED, Code.STORE_FAILED):
                        raise
                else:
                    self.given[one.tool_call_id] = text


TURNS: list[Any] = [
    [write("ipp", id="t1"), ask("q1"), call("once", {"n": 1}, id="o1"), call("safely", {"n": 1}, id="s1")],
    [ask("q2")],
    [write("cip", id="t2"), call("safely", {"n": 2}, id="s2"), ask("q3")],
    [call("once", {"n": 2}, id="o2")],
    say("done"),
]
CALLS = ["t1", "q1", "o1", "s1", "q2", "t2", "s2", "q3", "o2"]


def model() -> ScriptedModel:
    """Say what comes next by what was said, as a model does: it knows nothing of processes."""

    def turn(request: Any) -> Any:
        said = sum(isinstance(message, AssistantMessage) for message in request.messages)
        return TURNS[said]

    return ScriptedModel([turn], repeat=True)


@asynccontextmanager
async def living(world: World, store: Power, **options: Any) -> AsyncGenerator[Agent]:
    """A process with the agent, and somebody who answers."""
    options.setdefault("extensions", [TodoWriteExtension(), AskUserExtension()])
    async with open_agent(model(), store=store, tools=world.tools(), **options) as agent, trio.open_nursery() as people:
        people.start_soon(world.be_a_person, agent)
        yield agent
        people.cancel_scope.cancel()


async def live(world: World, store: Power, how: str, **options: Any) -> bool:
    """Be a process until the run is over, or until the store is cut: then die. Returns whether it is over."""
    over = False
    with trio.fail_after(DEADLOCK_S), trio.CancelScope() as everything:
        try:
            async with living(world, store, **options) as agent, trio.open_nursery() as nursery:

                async def work() -> None:
                    nonlocal over
                    handle = agent.session("s")
                    await handle.prompt("go", command="p1")
                    await handle.wait_idle()
                    over = not store.cut.is_set()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(work)
                await store.cut.wait()
                if how == "cancel":
                    everything.cancel()
                    await trio.sleep_forever()
                raise Crash
        except* Crash:
            pass
    return over


async def read_log(disk: Disk) -> list[ev.Event]:
    """Return the whole log, as another process reads it."""
    store = disk.store()
    async with open_agent(ScriptedModel([]), store=store):
        return list(await store.read("s", after=0, limit=100_000))


def check_story(world: World, log: Sequence[ev.Event]) -> None:
    """Check what must hold whenever and however often the process has died."""
    check_log(log)
    state = fold(log)
    check_history(state.messages)
    assert sum(isinstance(event, ev.RunStarted) for event in log) == 1, "the prompt was carried out twice"
    assert isinstance(log[-1], ev.RunCompleted)
    asks = Counter(event.ask.tool_call_id for event in log if isinstance(event, ev.AskOpened))
    assert asks == {"q1": 1, "q2": 1, "q3": 1}, "a question was put twice"
    check_answers(log, world.given.items())
    results = {message.tool_call_id: message for message in state.messages if isinstance(message, ToolMessage)}
    assert list(results) == CALLS
    assert all(results[one].success for one in ("q1", "q2", "q3")), "an answer was not used"
    assert all(results[one].success for one in ("s1", "s2")), "a call that may be repeated was not"
    done = Counter(name for name, _ in world.effects)
    for n, call_id in (1, "o1"), (2, "o2"):
        assert done[f"once {n}"] <= 1, f"{call_id} was run twice"
        assert done[f"once {n}"] or results[call_id].outcome == "interrupted"
    keys = {name: {key for other, key in world.effects if other == name} for name in done}
    assert all(len(each) == 1 for each in keys.values()), "a repeated call had another key"
    assert keys["safely 1"] == {f"{state.log_id}/s1"}


async def count_appends(disk: Disk) -> int:
    """Return how many appends an undisturbed run takes."""
    world, store = World(), disk.store()
    assert await live(world, store, "")
    check_story(world, await read_log(disk))
    assert sorted(name for name, _ in world.effects) == ["once 1", "once 2", "safely 1", "safely 2"]
    return store.appends


@pytest.mark.parametrize("how", ["raise", "cancel"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_is_cut_off_at_any_record_goes_on_to_its_end_b06_b07_b39_b43(
    kind: str, how: str, autojump_clock: MockClock, tmp_path: Path
) -> None:
    (tmp_path / "undisturbed").mkdir()
    appends = await count_appends(Disk(kind, tmp_path / "undisturbed"))
    assert appends > 20
    for after in range(appends):
        folder = tmp_path / str(after)
        folder.mkdir()
        disk, world = Disk(kind, folder), World()
        assert not await live(world, disk.store(after=after), how)
        assert await live(world, disk.store(), how), f"cut after {after} appends, the run does not go on"
        check_story(world, await read_log(disk))


@pytest.mark.parametrize("how", ["raise", "cancel"])
async def test_a_run_that_is_cut_off_again_and_again_goes_on_to_its_end(
    how: str, autojump_clock: MockClock, disk: Disk
) -> None:
    """Each process records six times more and dies; a model's message in between shows that the run comes further."""
    world, lives = World(), 0
    while not await live(world, disk.store(after=6), how, limits=Limits(max_resumes=5)):
        lives += 1
        assert lives < 30, "it does not come to its end"
    assert lives > 3
    check_story(world, await read_log(disk))
