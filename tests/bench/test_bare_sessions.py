"""The references of `cancel/*` have the shape that was counted, and end. Nobody looks at how long they take."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from bench import bare_sessions
from bench.bare_sessions import Parked
from bench.sessions import session_shape
from bench.shape import Entered, TaskShape, read_shape

RUN = TaskShape((Entered(None, True),))
SHAPES = {
    "a run in a session's nursery": TaskShape((Entered((RUN,)),)),
    "one task": RUN,
    "a nursery in the run": TaskShape((Entered((TaskShape((Entered(None, True), Entered((TaskShape(),)))),)),)),
    "the scope of a nursery": TaskShape((Entered(None), Entered((TaskShape(),), True))),
}


@pytest.mark.parametrize("shape", [*SHAPES.values(), session_shape()], ids=[*SHAPES, "the library's"])
async def test_a_parked_session_has_the_shape_that_it_was_given(shape: TaskShape) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        parked = Parked(shape, nursery)
        await parked.start_many(3)
        assert parked.living == 3
        assert trio.lowlevel.current_statistics().tasks_living == before + 3 * shape.tasks
        for number, task in enumerate(sorted(nursery.child_tasks, key=lambda task: task.name)):
            assert read_shape(task, parked.scopes[number]) == shape
        nursery.cancel_scope.cancel()
    assert parked.living == 0


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_a_session_is_cancelled_alone_and_waits_again_in_its_place(shape: TaskShape) -> None:
    async with trio.open_nursery() as nursery:
        parked = Parked(shape, nursery)
        await parked.start_many(2)
        tasks = trio.lowlevel.current_statistics().tasks_living
        parked.scopes[1].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert parked.living == 1
        parked.again(1)
        await trio.testing.wait_all_tasks_blocked()
        assert parked.living == 2
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        parked.outermost[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks - shape.tasks
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("at_a_time", [1, 64])
def test_all_are_cancelled_and_the_loop_is_watched_meanwhile(at_a_time: int) -> None:
    us_per_session, held_ms = bare_sessions.cancel_all(70, session_shape(), at_a_time=at_a_time)
    assert (us_per_session > 0, held_ms > 0) == (True, True)


@pytest.mark.parametrize("in_slices", [False, True])
def test_all_end_and_the_loop_is_watched_meanwhile(in_slices: bool) -> None:
    us_per_session, held_ms = bare_sessions.end(70, session_shape(), in_slices=in_slices)
    assert (us_per_session > 0, held_ms > 0) == (True, True)


def test_the_others_are_measured() -> None:
    shape = session_shape()
    assert bare_sessions.setup_us(5, shape) > 0
    assert bare_sessions.cancel_one_us(3, [0, 2, 2], shape) > 0
    assert bare_sessions.cancels_per_second(3, 10, shape) > 0


def test_they_run_without_the_library() -> None:
    program = "import sys, bench.bare_sessions; print(sorted({'actors', 'protocol'} & set(sys.modules)))"
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
