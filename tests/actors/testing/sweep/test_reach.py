import textwrap
from pathlib import Path

import pytest
import trio

from actors.testing.sweep import Await, Reach, Stage, explain, play, read_case, read_reasons, scenario
from actors.testing.sweep.reach import awaits

SOURCE = """\
async def outer(it):
    await first()
    async for one in it:
        pass
    async with (
        one() as a,
        two() as b,
    ):
        x = [await y async for y in it]
    call(
        await second(
            1,
        ),
    )

class Thing:
    async def method(self):
        def sync():
            pass
        return await third()

lazy = (y async for y in it)
"""


def test_every_await_async_for_and_async_with_is_a_place() -> None:
    places = awaits(SOURCE, "it.py")
    assert sorted((place.line, place.end, place.function) for place in places) == [
        (2, 2, "outer"),
        (3, 3, "outer"),
        (5, 7, "outer"),
        (9, 9, "outer"),
        (9, 9, "outer"),
        (11, 13, "outer"),
        (20, 20, "Thing.method"),
        (22, 22, "<module>"),
    ]
    assert str(min(places)) == "it.py:2, in outer: await first()"


MODULE = """\
import trio

async def walk(stage):
    await trio.sleep(1)
    await at_once()
    try:
        await trio.sleep(1)
    except trio.Cancelled:
        with trio.move_on_after(1, shield=True):
            await trio.sleep(1)
        raise
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1)
    await trio.lowlevel.checkpoint_if_cancelled()

async def at_once():
    pass

async def never():
    await trio.sleep(1)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(MODULE, "utf-8")
    return path


def lines(reach: Reach) -> list[int]:
    return [place.line for place in reach.unreached()]


def test_a_line_is_reached_where_a_task_waited_or_looked(module: Path) -> None:
    names: dict[str, object] = {}
    exec(compile(MODULE, str(module), "exec"), names)

    async def walk(stage: Stage) -> None:
        await names["walk"](stage)  # type: ignore[operator]

    reach = Reach([module.parent])
    assert reach.count() == 7
    assert lines(reach) == [4, 5, 7, 10, 12, 14, 20]
    play(scenario(walk), None, reach=reach)
    # 5 gave way to nobody, 10 is for when it is cancelled, 20 is called by nobody.
    assert lines(reach) == [5, 10, 20]
    play(scenario(walk), read_case("cancel@2"), reach=reach)
    assert lines(reach) == [5, 20]


def test_what_is_not_below_the_roots_is_not_collected(module: Path, tmp_path: Path) -> None:
    async def walk(stage: Stage) -> None:
        await trio.sleep(1)

    reach = Reach([tmp_path])
    play(scenario(walk), None, reach=reach)
    assert not reach.lines


def place(function: str) -> Await:
    return Await("shop/till.py", 3, 3, function, "await it()")


def test_reasons_match_files_and_functions_and_must_be_needed() -> None:
    reasons = read_reasons(
        textwrap.dedent("""
            # what needs a terminal
            shop/till.py:read_*  a terminal
            shop/door.py:*  nothing is there
        """)
    )
    assert reasons == [("shop/till.py:read_*", "a terminal"), ("shop/door.py:*", "nothing is there")]
    left, unused = explain([place("read_key"), place("pay")], reasons)
    assert left == [place("pay")]
    assert unused == ["shop/door.py:*"]


def test_a_pattern_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^'shop/till.py:pay': a pattern, then the reason why"):
        read_reasons("shop/till.py:pay")
