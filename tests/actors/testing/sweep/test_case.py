import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.testing.sweep import Case, Pattern, read_case, read_pattern, twice

NAMES = st.lists(st.from_regex(r"[a-z][\w-]{0,6}", fullmatch=True), min_size=1, max_size=3).map(tuple)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("cancel", Pattern(("cancel",))),
        ("answer,request", Pattern(("answer", "request"))),
        ("request+3:cancel", Pattern(("request",), 3, ("cancel",))),
        ("a,b+12:c,d", Pattern(("a", "b"), 12, ("c", "d"))),
        ("stop-it_2", Pattern(("stop-it_2",))),
    ],
)
def test_a_pattern_is_read_and_written(text: str, pattern: Pattern) -> None:
    assert read_pattern(text) == pattern
    assert str(pattern) == text


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("cancel@41", Case(Pattern(("cancel",)), 41)),
        ("answer,request@1", Case(Pattern(("answer", "request")), 1)),
        ("request@41+3:cancel", Case(Pattern(("request",), 3, ("cancel",)), 41)),
    ],
)
def test_a_case_is_read_and_written(text: str, case: Case) -> None:
    assert read_case(text) == case
    assert str(case) == text


@given(NAMES, st.integers(1, 10**6), st.integers(1, 8), st.none() | NAMES)
def test_whatever_is_written_is_read_again(
    first: tuple[str, ...], moment: int, later: int, second: tuple[str, ...] | None
) -> None:
    pattern = Pattern(first) if second is None else Pattern(first, later, second)
    assert read_pattern(str(pattern)) == pattern
    assert read_case(str(pattern.at(moment))) == pattern.at(moment)


@pytest.mark.parametrize("text", ["", "cancel@", "@3", "a,,b", "a b", "a+:b", "a+3", "a+3:", "3a", "cancel@3x", "a@-1"])
def test_what_is_no_fault_is_refused(text: str) -> None:
    expected = "they look like 'cancel', 'answer,cancel', 'cancel@41', 'cancel@41\\+3:cancel'$"
    with pytest.raises(ValueError, match=expected):
        read_pattern(text)
    with pytest.raises(ValueError, match=expected):
        read_case(text)


@pytest.mark.parametrize("text", ["cancel@0", "cancel@3+0:cancel"])
def test_moments_count_from_one(text: str) -> None:
    with pytest.raises(ValueError, match=r": moments count from 1$"):
        read_case(text)


def test_a_pattern_with_a_moment_and_a_case_without_one_are_told_apart() -> None:
    with pytest.raises(ValueError, match=r"^'a@3' names a moment, so it is a case; a pattern is 'a'$"):
        read_pattern("a@3")
    with pytest.raises(ValueError, match=r"^'a\+3:b' has no moment: a case is, for example, 'a@41'$"):
        read_case("a+3:b")


def test_twice_is_each_of_the_eight_distances() -> None:
    assert twice("request") == [f"request+{d}:request" for d in range(1, 9)]
    assert twice("request", "cancel", distances=range(2, 4)) == ["request+2:cancel", "request+3:cancel"]
