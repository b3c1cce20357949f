from collections.abc import AsyncGenerator, Generator

import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime.handed import Handed


async def test_a_task_that_is_woken_with_a_value_gets_it() -> None:
    got: list[object] = []

    async def wait() -> None:
        got.append(await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        (task,) = nursery.child_tasks
        trio.lowlevel.reschedule(task, Handed("value"))
    assert got == ["value"]


def test_it_goes_into_a_generator() -> None:
    def echo() -> Generator[str, str, None]:
        word = yield "ready"
        yield word

    generator = echo()
    next(generator)
    assert Handed("x").send(generator) == "x"


async def test_it_goes_into_an_async_generator() -> None:
    async def echo() -> AsyncGenerator[str, str]:
        word = yield "ready"
        await trio.lowlevel.checkpoint()
        yield word

    generator = echo()
    await anext(generator)
    assert await Handed("x").asend(generator) == "x"
    await generator.aclose()
