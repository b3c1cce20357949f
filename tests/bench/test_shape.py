"""The tasks of a session are read from trio's tree as they are."""

import msgspec
import trio
import trio.testing

from bench.shape import Entered, TaskShape, read_shape


async def read(body_scope: trio.CancelScope, *, with_child: bool = True) -> TaskShape:
    """Return the shape of a task: a scope, a nursery with one child in a scope, and another scope inside."""

    async def child() -> None:
        with body_scope:
            await trio.sleep_forever()

    async def session(task_status: trio.TaskStatus[trio.lowlevel.Task]) -> None:
        with trio.CancelScope():
            async with trio.open_nursery() as nursery:
                if with_child:
                    nursery.start_soon(child)
                with trio.CancelScope():
                    task_status.started(trio.lowlevel.current_task())
                    await trio.sleep_forever()

    async with trio.open_nursery() as outer:
        task = await outer.start(session)
        await trio.testing.wait_all_tasks_blocked()
        shape = read_shape(task, body_scope)
        outer.cancel_scope.cancel()
    return shape


async def test_scopes_and_nurseries_are_read_from_the_outermost_to_the_innermost() -> None:
    child = TaskShape((Entered(None, True),))
    assert await read(trio.CancelScope()) == TaskShape((Entered(), Entered((child,)), Entered()))


async def test_counts_include_what_is_in_nurseries() -> None:
    shape = await read(trio.CancelScope())
    assert (shape.tasks, shape.nurseries, shape.scopes) == (2, 1, 4)
    assert shape.describe() == (
        "2 tasks, 1 nursery and 4 cancel scopes (those of nurseries included) per session"
    )
    alone = TaskShape((Entered((TaskShape((Entered(()),)),)),))
    assert alone.describe() == "2 tasks, 2 nurseries and 2 cancel scopes (those of nurseries included) per session"
    assert TaskShape().describe().startswith("1 task, 0 nurseries and 0 cancel scopes")


async def test_the_scope_of_a_run_is_found_wherever_it_is() -> None:
    assert (await read(trio.CancelScope())).cancellable
    assert not (await read(trio.CancelScope(), with_child=False)).cancellable
    assert TaskShape((Entered(None, True),)).cancellable


async def test_a_shape_survives_the_way_to_another_process() -> None:
    shape = await read(trio.CancelScope())
    assert msgspec.json.decode(msgspec.json.encode(shape), type=TaskShape) == shape
