"""An error leaves a nursery as it was raised."""

import pytest
import trio

from actors.client.errors import Detached, LinkClosed, Refused, plain_errors


def test_errors_say_what_happened() -> None:
    assert str(LinkClosed(1012, "back soon")) == "the connection ended (1012): back soon"
    assert str(Refused("session.busy", "it is busy")) == "session.busy: it is busy"
    assert str(Detached("s", "session.closed", 7)) == "detached from session s after seq 7: session.closed"


def test_one_error_comes_out_alone_with_its_cause() -> None:
    cause = ValueError("why")
    error = KeyError("x")
    error.__cause__ = cause
    with pytest.raises(KeyError) as raised, plain_errors():
        raise BaseExceptionGroup("outer", [ExceptionGroup("inner", [error])])
    assert raised.value is error
    assert raised.value.__cause__ is cause


def test_several_errors_stay_together() -> None:
    with pytest.raises(ExceptionGroup) as raised, plain_errors():
        raise ExceptionGroup("two", [KeyError("x"), ValueError("y")])
    assert len(raised.value.exceptions) == 2


def test_an_interrupt_wins_over_the_errors_beside_it() -> None:
    with pytest.raises(KeyboardInterrupt), plain_errors():
        raise BaseExceptionGroup("both", [KeyError("x"), KeyboardInterrupt()])


async def test_a_cancel_reaches_the_scope_that_sent_it() -> None:
    with trio.CancelScope() as scope:
        with plain_errors():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
                await trio.sleep_forever()
    assert scope.cancelled_caught
