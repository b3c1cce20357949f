"""Every limit is a number, positive, finite, and says its unit."""

import math

import msgspec
import pytest

from protocol.limits import COMMANDS_KEPT, COMMANDS_KEPT_S, DEFAULT_LIMITS, SETTLED_ASKS_KEPT, Limits, Retention

FIELDS = Limits.__struct_fields__


@pytest.mark.parametrize("name", FIELDS)
def test_no_limit_is_infinite_or_nothing(name: str) -> None:
    value = getattr(DEFAULT_LIMITS, name)
    assert 0 < value < math.inf


@pytest.mark.parametrize("name", [name for name in FIELDS if isinstance(getattr(DEFAULT_LIMITS, name), float)])
def test_a_duration_says_that_it_is_in_seconds(name: str) -> None:
    assert name.endswith("_s")


@pytest.mark.parametrize(("name", "value"), [("max_turns", 0), ("max_todos", -1), ("cancel_grace_s", 0.0)])
def test_a_limit_that_lets_nothing_through_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^limit {name} is above 0, not {value}$"):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_a_limit_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^limit cleanup_s is above 0, not nan$"):
        Limits(cleanup_s=math.nan)


def test_limits_are_named_where_they_are_given_and_never_change() -> None:
    with pytest.raises(TypeError, match="Extra positional arguments provided"):
        Limits(1)  # type: ignore[misc]  # pyright: ignore[reportCallIssue]
    with pytest.raises(AttributeError, match="immutable type: 'Limits'"):
        DEFAULT_LIMITS.max_turns = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert msgspec.structs.replace(DEFAULT_LIMITS, max_turns=3).max_turns == 3


def test_the_documented_defaults() -> None:
    assert DEFAULT_LIMITS.max_turns == 36
    assert (DEFAULT_LIMITS.max_todos, DEFAULT_LIMITS.max_todo_chars) == (100, 4_000)
    assert (DEFAULT_LIMITS.max_question_chars, DEFAULT_LIMITS.max_options, DEFAULT_LIMITS.max_option_chars) == (
        4_000, 20, 500,
    )  # fmt: skip


def test_what_every_replay_forgets_is_no_setting() -> None:
    assert (SETTLED_ASKS_KEPT, COMMANDS_KEPT, COMMANDS_KEPT_S) == (256, 10_000, 24 * 3_600)
    assert not {"settled_asks_kept", "commands_kept"} & set(FIELDS)


def test_a_websocket_message_can_carry_the_largest_event() -> None:
    assert DEFAULT_LIMITS.max_message_bytes >= DEFAULT_LIMITS.max_event_bytes
    assert DEFAULT_LIMITS.max_outbox_bytes >= DEFAULT_LIMITS.max_event_bytes


def test_what_is_kept_of_a_log_is_at_least_one_record_and_no_time_that_has_passed() -> None:
    assert (Retention().records, Retention().age_s) == (10_000, None)
    with pytest.raises(ValueError, match=r"^at least 1 record is kept, not 0$"):
        Retention(records=0)
    for age_s in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=rf"^age_s is above 0, not {age_s}$"):
            Retention(age_s=age_s)
