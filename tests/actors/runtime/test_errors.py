import pickle

import pytest
import trio

from actors.runtime.errors import ActorError, ActorGone, AskTimeout, NameTaken, NotAccepting, unwrap


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
    ],
)
def test_an_error_says_who_and_what_and_can_be_pickled(error: ActorError, text: str) -> None:
    assert str(error) == text
    assert str(pickle.loads(pickle.dumps(error))) == text


def test_a_gone_actor_carries_its_crash_as_the_cause() -> None:
    crash = ValueError("x")
    gone = ActorGone("a", "crashed", crash)
    assert gone.cause is gone.__cause__ is crash


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
