import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.agent import ports
from actors.runtime import threads
from actors.runtime.threads import InlineThreads, Threads, WorkerThreads, default_threads


def _fail() -> None:
    raise OSError("disk full")


async def test_worker_threads_run_a_call_in_another_thread() -> None:
    assert await WorkerThreads().run_sync(threading.get_ident) != threading.get_ident()
    with pytest.raises(OSError, match=r"^disk full$"):
        await WorkerThreads().run_sync(_fail)


async def test_inline_threads_run_a_call_in_this_thread() -> None:
    assert await InlineThreads().run_sync(threading.get_ident) == threading.get_ident()
    with pytest.raises(OSError, match=r"^disk full$"):
        await InlineThreads().run_sync(_fail)


async def test_inline_threads_let_other_tasks_run_before_the_call() -> None:
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)

        async def other() -> None:
            order.append("other")
            await trio.lowlevel.checkpoint()

        nursery.start_soon(other)
        await InlineThreads().run_sync(lambda: order.append("call"))
    assert sorted(order) == ["call", "other"]
    with trio.testing.assert_checkpoints():
        await InlineThreads().run_sync(lambda: None)


@pytest.mark.parametrize("made", [InlineThreads(), WorkerThreads()])
async def test_a_call_that_was_cancelled_before_it_began_is_not_made(made: Threads) -> None:
    calls: list[int] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await made.run_sync(lambda: calls.append(1))
    assert scope.cancelled_caught
    assert calls == []


async def test_under_a_virtual_clock_a_blocking_call_takes_no_virtual_time(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    with trio.fail_after(0.001):
        assert await default_threads().run_sync(lambda: sum(range(1000))) == 499500
    assert trio.current_time() == began


async def test_the_default_is_inline_under_a_mock_clock(autojump_clock: MockClock) -> None:
    assert isinstance(default_threads(), InlineThreads)


async def test_the_default_is_worker_threads_under_a_real_clock() -> None:
    assert isinstance(default_threads(), WorkerThreads)


async def test_another_clock_of_the_hosts_own_counts_as_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio.lowlevel, "current_clock", lambda: object())
    assert isinstance(default_threads(), WorkerThreads)


def test_outside_of_trio_there_is_no_default() -> None:
    with pytest.raises(RuntimeError):
        default_threads()


def test_a_program_does_not_load_trios_test_kit_for_it() -> None:
    code = """
import sys, trio
from actors.runtime.threads import WorkerThreads, default_threads
async def main():
    assert type(default_threads()) is WorkerThreads
trio.run(main)
assert "trio.testing" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[3])


def test_agents_have_the_same_port() -> None:
    assert (ports.Threads, ports.WorkerThreads) == (threads.Threads, threads.WorkerThreads)


async def test_any_object_with_run_sync_is_the_port() -> None:
    class Counting:
        calls = 0

        async def run_sync(self, call: Callable[[], threads.T]) -> threads.T:
            self.calls += 1
            return await InlineThreads().run_sync(call)

    counting = Counting()
    port: Threads = counting
    assert await port.run_sync(lambda: "done") == "done"
    assert counting.calls == 1
