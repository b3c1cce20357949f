import pytest

from actors.runtime.restart import Backoff, Restart, RestartPolicy


@pytest.mark.parametrize(
    ("restart", "after_crash", "after_return"),
    [
        (Restart.TEMPORARY, False, False),
        (Restart.TRANSIENT, True, False),
        (Restart.PERMANENT, True, True),
    ],
)
def test_which_ends_are_followed_by_a_restart(restart: Restart, after_crash: bool, after_return: bool) -> None:
    policy = RestartPolicy(restart)
    assert policy.wants(None, crashed=True) is after_crash
    assert policy.wants(None, crashed=False) is after_return


def test_the_budget_is_a_number_in_a_window_that_slides() -> None:
    policy = RestartPolicy(limit=2, window_s=10.0)
    one = policy.admit((), 0.0)
    assert one == (0.0,)
    two = policy.admit(one, 9.0)
    assert two == (0.0, 9.0)
    assert policy.admit(two, 9.99) is None
    assert policy.admit(two, 10.0) == (9.0, 10.0)


def test_no_restart_at_all_with_a_limit_of_zero() -> None:
    assert RestartPolicy(limit=0).admit((), 0.0) is None


def test_the_wait_grows_up_to_its_cap() -> None:
    backoff = Backoff(first_s=0.1, factor=2.0, cap_s=1.0, jitter=0.0)
    assert [backoff.delay_s(n) for n in (1, 2, 3, 4, 5, 10_000)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


@pytest.mark.parametrize(("drawn", "expected"), [(0.0, 0.5), (0.5, 1.0), (0.999999, 1.5)])
def test_jitter_spreads_the_wait_around_it(drawn: float, expected: float) -> None:
    backoff = Backoff(first_s=1.0, jitter=0.5, draw=lambda: drawn)
    assert backoff.delay_s(1) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Backoff(first_s=-1), "backoff times must be 0 s or more, not first_s=-1, cap_s=30.0"),
        (lambda: Backoff(factor=0.5), "backoff factor must be 1 or more, not 0.5"),
        (lambda: Backoff(jitter=2), "backoff jitter must be from 0 to 1, not 2"),
        (lambda: RestartPolicy(limit=-1), "restart limit must be 0 or more, not -1"),
        (lambda: RestartPolicy(window_s=0), "restart window must be above 0 s, not 0"),
    ],
)
def test_figures_out_of_range_are_refused(make: object, text: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=f"^{text}$"):
        make()
