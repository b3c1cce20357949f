import pytest

from actors.testing.seeding import SEED_VARIABLE, choose_seed, only_seed, seed_range


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEED_VARIABLE, raising=False)


def test_a_number_means_so_many_seeds_from_zero_on() -> None:
    assert list(seed_range(3)) == [0, 1, 2]
    assert list(seed_range([7, 3])) == [7, 3]
    assert list(seed_range(range(100, 102))) == [100, 101]
    assert list(seed_range(seed for seed in (1, 2))) == [1, 2]


@pytest.mark.parametrize("none", [0, -1, []])
def test_no_seed_at_all_is_refused(none: int | list[int]) -> None:
    with pytest.raises(ValueError, match=r"^at least one scheduler seed is needed, or nothing is tested; not "):
        seed_range(none)


def test_without_the_variable_the_seed_is_another_one_each_time() -> None:
    assert len({choose_seed() for _ in range(10)}) > 5
    assert only_seed(range(5)) == range(5)


def test_the_variable_names_the_only_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "17")
    assert choose_seed() == 17
    assert only_seed(range(5)) == (17,)


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "")
    assert only_seed(range(5)) == range(5)


def test_a_variable_that_is_no_integer_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "x17")
    message = r"^ACTORS_SCHEDULER_SEED is a scheduler seed, an integer; not 'x17'$"
    with pytest.raises(ValueError, match=message):
        choose_seed()
    with pytest.raises(ValueError, match=message):
        only_seed(range(5))
