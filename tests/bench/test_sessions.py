"""What `cancel/*` cancels is a session with a todo list of three and one open question."""

import pytest
import trio

from actors import Agent, ScriptedModel, open_agent
from actors.models.scripted import say
from bench import sessions
from bench.peers import sizes
from bench.shape import TaskShape


@pytest.fixture
def shape() -> TaskShape:
    return sessions.session_shape()  # runs trio itself


async def test_each_session_waits_at_its_question_with_its_list(shape: TaskShape) -> None:
    async with sessions.open_pending_agent() as agent:
        before = trio.lowlevel.current_statistics().tasks_living
        handles = [*await sessions.put_pending(agent, 2), *await sessions.put_pending(agent, 2, first=2)]
        assert [handle.id for handle in handles] == ["s-0", "s-1", "s-2", "s-3"]
        assert [len(handle.asks) for handle in handles] == [1] * 4
        assert [len(todos.todos) for handle in handles if (todos := handle.todos) is not None] == [3] * 4
        # Nobody watches: a consumer would be a task of its own.
        tasks = trio.lowlevel.current_statistics().tasks_living - before
        assert tasks == 4 * shape.tasks == 4 * sizes.TASKS_PER_SESSION


async def test_a_session_that_does_not_wait_is_told() -> None:
    said = r"^session s-0 was to wait at a question with a todo list, and does not$"
    async with open_agent(ScriptedModel([say("Done.")], repeat=True)) as agent:
        with pytest.raises(RuntimeError, match=said):
            await sessions.put_pending(agent, 1)


def test_the_shape_has_the_scope_of_the_run() -> None:
    assert sessions.session_shape().cancellable


@pytest.mark.parametrize("by_handle", [False, True])
def test_all_are_cancelled_and_the_loop_is_watched_meanwhile(by_handle: bool) -> None:
    us_per_session, held_ms = sessions.cancel_all(70, by_handle=by_handle)
    assert (us_per_session > 0, held_ms > 0) == (True, True)


def test_a_run_that_goes_on_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancel_all_but_one(agent: Agent, reason: str) -> int:
        for number in range(1, 3):
            await agent.session(f"s-{number}").cancel(reason)
        return 2

    async def wait_none(agent: object, handles: object) -> None:
        await trio.testing.wait_all_tasks_blocked()

    monkeypatch.setattr(Agent, "cancel_all", cancel_all_but_one)
    monkeypatch.setattr(sessions, "_wait_all_idle", wait_none)
    with pytest.raises(RuntimeError, match=r"^of 3 runs that were cancelled 1 go on; 2 tasks ended$"):
        sessions.cancel_all(3)


def test_the_others_are_measured() -> None:
    assert sessions.setup_us(5) > 0
    assert sessions.cancel_one_us(3, [0, 2, 2]) > 0
    assert min(sessions.end(5)) > 0
