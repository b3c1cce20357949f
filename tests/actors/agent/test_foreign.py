import pytest
import trio

from actors.agent.foreign import contain, describe_foreign, fence, is_foreign
from protocol.errors import ToolError


@pytest.mark.parametrize("error", [SystemExit(), GeneratorExit(), ValueError()])
async def test_what_nobody_sent_belongs_to_who_raised_it(error: BaseException) -> None:
    assert is_foreign(error)
    assert is_foreign(BaseExceptionGroup("g", [error, SystemExit()]))


async def test_an_interrupt_is_the_applications() -> None:
    assert not is_foreign(KeyboardInterrupt())
    assert not is_foreign(BaseExceptionGroup("g", [SystemExit(), KeyboardInterrupt()]))


async def test_a_cancelled_is_ours_exactly_while_a_scope_around_us_is_cancelled() -> None:
    caught: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            found = is_foreign(error), is_foreign(BaseExceptionGroup("g", [ValueError(), error]))
            caught.append(error)
            raise
    assert found == (False, False)
    assert is_foreign(caught[0])


def test_the_kinds_are_named_once_each_in_order() -> None:
    group = BaseExceptionGroup("g", [SystemExit(), BaseExceptionGroup("h", [KeyboardInterrupt(), SystemExit()])])
    assert describe_foreign(group) == (
        "ended with KeyboardInterrupt, SystemExit, though nobody cancelled or stopped it"
    )


async def test_a_block_that_contains_turns_what_is_foreign_into_an_error_that_says_who() -> None:
    with pytest.raises(RuntimeError, match=r"^Planner ended with SystemExit, though nobody cancelled") as raised:
        with contain("Planner"):
            raise SystemExit(3)
    assert isinstance(raised.value.__cause__, SystemExit)
    with pytest.raises(ToolError, match=r"^pay ended with GeneratorExit"):
        with contain("pay", ToolError):
            raise GeneratorExit


async def test_a_block_that_contains_lets_errors_and_real_cancels_go_on() -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as raised:
        with contain("Planner"):
            raise error
    assert raised.value is error
    with trio.CancelScope() as scope:
        scope.cancel()
        with contain("Planner"):
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_what_is_foreign_beside_a_real_cancel_becomes_an_error_and_the_cancel_goes_on_a18() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ToolError, match="^pay ended with SystemExit, though nobody")):
        with trio.CancelScope() as scope, contain("pay", ToolError):
            async with trio.open_nursery() as nursery:

                async def leave() -> None:
                    try:
                        await trio.sleep_forever()
                    finally:
                        raise SystemExit(3)

                nursery.start_soon(leave)
                await trio.lowlevel.checkpoint()
                scope.cancel()
                await trio.sleep_forever()


async def test_a_scope_that_was_left_open_is_closed_and_told_by_trio() -> None:
    with pytest.raises(RuntimeError, match="Cancel scope stack corrupted"), fence():
        trio.CancelScope().__enter__().cancel()
    await trio.lowlevel.checkpoint()
    with fence():
        await trio.lowlevel.checkpoint()
    with trio.CancelScope() as scope, fence():
        scope.cancel()
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
