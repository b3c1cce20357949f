"""Scenarios of runs that call tools: those that work, and those that misbehave."""

from typing import Any

import trio

from actors import TodoWriteExtension, ToolError, tool
from actors.models.scripted import call, say
from actors.testing.sweep import Stage, scenario
from protocol import events as ev
from protocol.chat import CallOutcome
from tests.sweeps.stage_agent import TOGETHER, USUAL, Acting, acting

STATUSES = {"p": "pending", "i": "in_progress", "c": "completed"}


def todos(statuses: str) -> dict[str, Any]:
    """Return the arguments of `todo_write` for statuses such as `cip`."""
    items = zip(("read", "write", "test"), statuses, strict=True)
    return {"todos": [{"content": content, "status": STATUSES[letter]} for content, letter in items]}


@tool
async def fetch(n: int) -> str:
    """Take a while.

    Args:
        n: Seconds.
    """
    await trio.sleep(n)
    return f"fetched {n}"


@tool
def compute(n: int) -> int:
    """Block a worker thread.

    Args:
        n: What is doubled.
    """
    return 2 * n


@tool
async def refuse(n: int) -> str:
    """Fail after a while, in the way of tools or in any other.

    Args:
        n: 0 for the way of tools.
    """
    await trio.sleep(1)
    if n == 0:
        raise ToolError("not today")
    raise OSError("no such file")


@tool
async def hang() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    return "never"


@tool
async def tidy_slowly() -> str:
    """Wait for ever, and need a while to end: less than the grace."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(3, shield=True):
            await trio.sleep(1)
    return "never"


@tool
async def swallow() -> str:
    """Take a cancel for nothing, and go on for longer than the grace."""
    try:
        await trio.sleep_forever()
    except trio.Cancelled:  # noqa: ASYNC103 - what a tool must not do, and some do
        with trio.CancelScope(shield=True):
            await trio.sleep(12)
    return "late"  # noqa: ASYNC910


@tool
async def cancel_itself() -> str:
    """Let out a Cancelled whose scope is not around it any more."""
    caught: BaseException | None = None
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep(1)
        except trio.Cancelled as cancelled:  # noqa: ASYNC103
            caught = cancelled
    await trio.lowlevel.checkpoint()
    assert caught is not None
    raise caught


def check_outcomes(agent: Acting, **expected: CallOutcome) -> None:
    """Check the results of a run that has completed, unless an error was injected into one of the tools."""
    if agent.ended == "run_completed" and "error" not in agent.stage.struck and agent.session is not None:
        found = {call_id: result.outcome for call_id, result in agent.results().items()}
        assert found in ({}, expected), f"the calls of a run that completed ended as {found}"


# Extensions hold configuration only, so every play may use the same; making one costs as much as a play.
PLAN = TodoWriteExtension()
PLANNED = [
    [
        say("hm "),
        call("todo_write", todos("ipp"), id="t1"),
        call("fetch", {"n": 1}, id="f1"),
        call("fetch", {"n": 2}, id="f2"),
    ],
    [call("todo_write", todos("cip"), id="t2"), call("fetch", {"n": 1}, id="f3")],
    [call("todo_write", todos("cci"), id="t3")],
    [call("todo_write", todos("ccc"), id="t4")],
    say("done"),
]


@scenario(faults=[*USUAL, *TOGETHER], errors_in="r*")
async def planned_work(stage: Stage) -> None:
    """A todo list of three, with two parallel tools in its first turn."""
    async with acting(stage, PLANNED, tools=[fetch], extensions=[PLAN]) as agent:
        await agent.watch()
        await agent.consume()
        assert PLAN.todos("s") is None, "the list has outlived its run"
        assert agent.leaving_took_s < 0.5, "the run that was left went on"
        check_outcomes(agent, **dict.fromkeys(("t1", "f1", "f2", "t2", "f3", "t3", "t4"), CallOutcome.COMPLETED))
        await agent.again()


@scenario(faults=USUAL, errors_in="r*")
async def blocking_tools(stage: Stage) -> None:
    """Tools that run in worker threads: one alone, then two at a time."""
    turns = [call("compute", {"n": 1}, id="c1"), [call("compute", {"n": n}, id=f"c{n}") for n in (2, 3)], say("done")]
    async with acting(stage, turns, tools=[compute]) as agent:
        await agent.perform()


@scenario(faults=USUAL, errors_in="r*")
async def tools_that_fail(stage: Stage) -> None:
    """A failed call is a result, and its sibling goes on; so is one that no tool can take."""
    turns = [
        [call("refuse", {"n": 0}, id="a"), call("refuse", {"n": 1}, id="b"), call("fetch", {"n": 2}, id="c")],
        [call("unknown", id="d"), call("fetch", {"n": "many"}, id="e")],
        say("done"),
    ]
    async with acting(stage, turns, tools=[refuse, fetch]) as agent:
        await agent.watch()
        await agent.consume()
        failed = CallOutcome.FAILED
        check_outcomes(agent, a=failed, b=failed, c=CallOutcome.COMPLETED, d=failed, e=failed)
        await agent.again()


@scenario(faults=USUAL, errors_in="r*")
async def tool_with_a_cancelled_of_its_own(stage: Stage) -> None:
    """That is a failed call and not a cancelled run, alone and beside another."""
    turns = [
        call("cancel_itself", id="a"),
        [call("cancel_itself", id="b"), call("fetch", {"n": 1}, id="c")],
        say("done"),
    ]
    async with acting(stage, turns, tools=[cancel_itself, fetch]) as agent:
        await agent.watch()
        await agent.consume()
        check_outcomes(agent, a=CallOutcome.FAILED, b=CallOutcome.FAILED, c=CallOutcome.COMPLETED)
        await agent.again()


@scenario(faults=[*USUAL, "request+1:request", "request+2:cancel"], errors_in="r*")
async def tools_that_hang(stage: Stage) -> None:
    """Two calls that never end by themselves, one of which needs a while to end at all."""
    turns = [[call("hang", id="a"), call("tidy_slowly", id="b")]]
    async with acting(stage, turns, tools=[hang, tidy_slowly]) as agent:
        agent.nursery.start_soon(agent.cancel_after, 5)
        await agent.perform(expected="run_cancelled")


@scenario(faults=[*USUAL, "request+1:request", "request+1:cancel", "request+3:stop"], errors_in="r*")
async def tool_that_swallows_the_cancel(stage: Stage) -> None:
    """After the grace the run is over without it: it is named and counted, and nothing that it does is kept."""
    named: list[str] = []

    def note(event: ev.Event) -> None:
        if isinstance(event, ev.RunCancelled):
            named.extend(event.stuck)

    async with acting(
        stage, [[call("swallow", id="a"), call("fetch", {"n": 1}, id="b")]], tools=[swallow, fetch]
    ) as agent:
        agent.react = note
        agent.nursery.start_soon(agent.cancel_after, 5)
        await agent.watch()
        await agent.consume(expected="run_cancelled")
        if agent.undisturbed:
            assert named == ["swallow"]
        assert agent.agent.stuck_tools == 1 or not named, f"{agent.agent.stuck_tools} tools are counted as stuck"
        assert all(result.content != "late" for result in agent.results().values()), "a straggler's result was kept"
        await agent.again()


@scenario(faults=["cancel", "request", "session", "stop", "leave"], errors_in="r*")
async def tool_alone_that_swallows_the_cancel(stage: Stage) -> None:
    """The same in the run's own task."""
    async with acting(stage, [call("swallow", id="a")], tools=[swallow]) as agent:
        agent.nursery.start_soon(agent.cancel_after, 5)
        await agent.perform(expected="run_cancelled")
