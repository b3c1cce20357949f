"""What is too large or of another shape than the tools say is refused where it comes in; nothing behind it suffers."""

import msgspec
import pytest
import trio
from trio.testing import MockClock

from actors import AgentEventType, ExternalEvent, tool
from actors.models.scripted import call, say
from protocol.limits import Limits
from tests.scenarios.staging import ask, staged

MEGABYTE = 1_048_576


async def test_a_result_over_the_limit_is_an_error_and_no_event_is_over_it_d22(autojump_clock: MockClock) -> None:
    """An event that no client could take would be sent again at each reconnect, for ever."""

    @tool
    async def dump() -> str:
        """Return forty megabytes."""
        return "x" * (40 * MEGABYTE)

    limits = Limits(max_event_bytes=MEGABYTE)
    async with staged([[call("dump", id="c1")], say("done")], tools=[dump], limits=limits) as agent:
        async with agent.stream("go", session_id="s") as events:
            seen = [event async for event in events]
        failed = [event for event in seen if event.type is AgentEventType.TOOL_FAILED]
        assert [event.code for event in failed] == ["event.too_large"]
        assert seen[-1].type is AgentEventType.RUN_COMPLETED
        session = agent.find("s")
        assert session is not None
        assert max(len(msgspec.json.encode(event)) for event in session.log) < MEGABYTE


@pytest.mark.parametrize("item_id", [None, "", 1, "1"])
async def test_items_with_ids_of_any_kind_are_refused_by_place_and_none_is_folded_c17(
    item_id: object, autojump_clock: MockClock
) -> None:
    plain = [{"content": c, "status": "in_progress" if c == "a" else "pending"} for c in "abcde"]
    odd = [*plain[:4], {**plain[4], "id": item_id}]
    writes = [[call("todo_write", {"todos": todos})] for todos in (plain, odd)]
    turns = [*writes, say("done")]
    async with staged(turns) as agent:
        async with agent.stream("go", session_id="s") as events:
            seen = [event async for event in events]
        (failed,) = [event for event in seen if event.type is AgentEventType.TOOL_FAILED]
        assert failed.code == "tool.invalid_args"
        assert "todos[4].id" in failed.error
        assert seen[-1].todos is not None
        assert [item.content for item in seen[-1].todos.todos] == list("abcde")


async def test_sources_attached_in_one_order_may_leave_in_any_and_from_any_task_a05(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent:
        channels = [trio.open_memory_channel[ExternalEvent](1) for _ in range(3)]
        for _, receive in channels:
            await agent.attach(receive, session_id="s")
        async with trio.open_nursery() as nursery:  # the first first, each from a task that did not attach it
            for send, _ in channels[:2]:
                nursery.start_soon(send.aclose)
        await agent.session("s").prompt("go")
        await trio.testing.wait_all_tasks_blocked()
        last = channels[2][0]
        await last.send(ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": "yes"}))
        await agent.session("s").wait_idle()
        assert agent.session("s").history[-1].content == "done"
        await last.aclose()
