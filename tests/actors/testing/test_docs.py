"""The pages on testing and on cancellation are test files."""

import re
from pathlib import Path

import pytest

from actors import testing
from actors.testing.sweep.command import main

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
CODE = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
CANCELLATION = (ROOT / "docs" / "cancellation.md").read_text(encoding="utf-8")


def test_the_code_of_the_page_is_a_test_file_that_passes(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntrio_mode = true\nfilterwarnings = error\naddopts = --strict-markers")
    pytester.makepyfile(CODE)
    result = pytester.runpytest_inprocess("-p", "actors.testing.plugin", "-q", "-p", "no:cacheprovider")
    tests = len(re.findall(r"^(?:async )?def test_", CODE, re.MULTILINE))
    assert tests == 8
    result.assert_outcomes(passed=tests + 19)


def test_every_public_name_is_on_the_page() -> None:
    assert [name for name in testing.__all__ if not re.search(rf"\b{name}\b", PAGE)] == []


def cancellation_code() -> str:
    return "\n\n".join(re.findall(r"```python\n(.*?)```", CANCELLATION, re.DOTALL))


def test_the_code_of_the_page_on_cancellation_passes(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfilterwarnings = error")
    pytester.makepyfile(cancellation_code())
    pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_finding_on_that_page_is_what_comes_out(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    careless = cancellation_code().replace("if not request.reply.send(taken):", "request.reply.send(taken)")
    careless = careless.replace('            vault["coins"] += taken  # the customer is gone\n', "")
    pytester.makepyfile(corner_bank=careless)
    pytester.syspathinsert()
    assert main(["corner_bank:a_withdrawal", "--fault", "leave"]) == 1
    said = capsys.readouterr().out
    (finding,) = re.findall(r"^shop:(a_withdrawal, .*)$", CANCELLATION, re.MULTILINE)
    (line,) = re.findall(r"/home/me/shop.py:(\d+), in a_withdrawal", CANCELLATION)
    assert f"corner_bank:{finding}\n" in said
    assert f"corner_bank.py:{line}, in a_withdrawal\n" in said


def test_every_name_of_the_sweep_that_a_user_needs_is_on_that_page() -> None:
    for name in ("Stage", "scenario", "sweep", "twice"):
        assert re.search(rf"\b{name}\b", CANCELLATION)
