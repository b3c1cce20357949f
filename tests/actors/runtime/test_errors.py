import pickle

import pytest
import trio

from actors.runtime.errors import (
    ActorError,
    ActorGone,
    AskCycle,
    AskTimeout,
    MailboxFull,
    MessageDropped,
    NameTaken,
    NotAccepting,
    StashFull,
    TooManyChildren,
    cut_off_error,
    own_part,
    stray_cancel,
    unwrap,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ActorGone("s/1", "crashed", ValueError("x")), "actor 's/1' is gone: crashed"),
        (
            AskTimeout("s/1", 2.5, 3, "Add"),
            "actor 's/1' did not answer within 2.5 s: handling Add, 3 queued",
        ),
        (
            AskTimeout("s/1", 1, 0, None),
            "actor 's/1' did not answer within 1 s: waiting for a message, 0 queued",
        ),
        (
            NameTaken("s/1"),
            "name 's/1' is taken by an actor that has not ended; join it first, or choose another name",
        ),
        (NotAccepting("system"), "'system' is closing and starts no more actors"),
        (
            MailboxFull("s/1"),
            "the mailbox of actor 's/1' is full and rejects what it has no room for; "
            "send it again later, or let it wait for room",
        ),
        (
            MailboxFull(),
            "this mailbox is full and rejects what it has no room for; send it again later, or let it wait for room",
        ),
        (
            MessageDropped("s/1"),
            "actor 's/1' did not see the request: its mailbox dropped it for a newer message",
        ),
        (
            StashFull("s/1", 64),
            "the stash of actor 's/1' is full: it holds 64; unstash them, or handle this message",
        ),
        (AskCycle(("a", "a")), "ask cycle: a asks a"),
        (AskCycle(("a", "b", "a")), "ask cycle: a asks b asks a"),
        (AskCycle(("a", "b asks c", "d\n", "", "a")), "ask cycle: a asks 'b asks c' asks 'd\\n' asks '' asks a"),
        (
            TooManyChildren("pool", 8),
            "'pool' has all the 8 children it may have; start one more when one has ended",
        ),
    ],
)
def test_an_error_says_who_and_what_and_can_be_pickled(error: ActorError, text: str) -> None:
    assert str(error) == text
    assert str(pickle.loads(pickle.dumps(error))) == text


def test_a_gone_actor_carries_its_crash_as_the_cause() -> None:
    crash = ValueError("x")
    gone = ActorGone("a", "crashed", crash)
    assert gone.cause is gone.__cause__ is crash


def test_an_error_can_be_read_by_its_attributes() -> None:
    assert MailboxFull("a").name == MessageDropped("a").name == "a"
    assert (MailboxFull().name, AskCycle(("a", "a")).path) == ("", ("a", "a"))
    stash, children = StashFull("a", 1), TooManyChildren("b", 2)
    assert (stash.name, stash.limit) == ("a", 1)
    assert (children.name, children.limit) == ("b", 2)


def test_an_ask_timeout_is_a_too_slow_error() -> None:
    assert issubclass(AskTimeout, trio.TooSlowError)


def test_groups_of_one_are_taken_away_and_their_notes_kept() -> None:
    error = ValueError("x")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [error])])
    group.add_note("while testing")
    assert unwrap(group) is error
    assert error.__notes__ == ["while testing"]


def test_real_plurality_and_plain_errors_stay() -> None:
    both = ExceptionGroup("both", [ValueError("x"), KeyError("y")])
    assert unwrap(ExceptionGroup("outer", [both])) is both
    assert unwrap(both.exceptions[0]) is both.exceptions[0]


async def cancelled_while(cleanup_of: Exception | None) -> trio.Cancelled:
    caught: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            try:
                if cleanup_of is not None:
                    raise cleanup_of
            finally:
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            caught.append(error)
            raise
    return caught[0]


async def test_a_cancelled_whose_scope_is_around_goes_on_and_a_stray_one_is_a_crash() -> None:
    cancelled = await cancelled_while(None)
    assert own_part(cancelled, cancelled=True) == (None, cancelled)
    crash, rest = own_part(cancelled, cancelled=False)
    assert (str(crash), rest) == ("the body let out a Cancelled of a scope that is not around it", None)
    assert isinstance(crash, RuntimeError)
    assert crash.__cause__ is cancelled
    assert str(stray_cancel(cancelled)) == str(crash)


async def test_an_error_is_the_actors_own_and_what_came_with_it_goes_on() -> None:
    error, exit_ = ValueError("x"), SystemExit(3)
    cancelled = await cancelled_while(None)
    assert own_part(error, cancelled=True) == (error, None)
    assert own_part(exit_, cancelled=False) == (None, exit_)
    crash, rest = own_part(BaseExceptionGroup("both", [error, cancelled]), cancelled=True)
    assert crash is error
    assert isinstance(rest, BaseExceptionGroup)
    assert rest.exceptions == (cancelled,)


async def test_the_error_that_a_cancelled_cut_off_is_found_r19() -> None:
    error = ValueError("x")
    assert cut_off_error(await cancelled_while(error)) is error
    assert cut_off_error(await cancelled_while(None)) is None


async def test_the_error_is_found_behind_any_number_of_cancelled_r19() -> None:
    error = ValueError("x")
    outer = await cancelled_while(None)
    outer.__context__ = await cancelled_while(error)
    assert cut_off_error(outer) is error
    outer.__context__ = SystemExit(3)
    assert cut_off_error(outer) is None
