import pytest
import trio

from actors.agent.foreign import as_exception, describe_foreign, is_foreign


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
            assert not is_foreign(error)
            assert not is_foreign(BaseExceptionGroup("g", [ValueError(), error]))
            caught.append(error)
            raise
    assert is_foreign(caught[0])


def test_the_kinds_are_named_once_each_in_order() -> None:
    group = BaseExceptionGroup("g", [SystemExit(), BaseExceptionGroup("h", [KeyboardInterrupt(), SystemExit()])])
    assert describe_foreign(group) == (
        "ended with KeyboardInterrupt, SystemExit, though nobody cancelled or stopped it"
    )


def test_an_exception_stays_and_anything_else_becomes_one_that_says_who() -> None:
    error = ValueError("mine")
    assert as_exception(error, "Planner") is error
    made = as_exception(SystemExit(3), "Planner")
    assert str(made) == "Planner ended with SystemExit, though nobody cancelled or stopped it"
