"""The page on testing is a test file."""

import re
from pathlib import Path

import pytest

from actors import testing

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
CODE = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


def test_the_code_of_the_page_is_a_test_file_that_passes(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntrio_mode = true\nfilterwarnings = error\naddopts = --strict-markers")
    pytester.makepyfile(CODE)
    result = pytester.runpytest_inprocess("-p", "actors.testing.plugin", "-q", "-p", "no:cacheprovider")
    tests = len(re.findall(r"^(?:async )?def test_", CODE, re.MULTILINE))
    assert tests == 8
    result.assert_outcomes(passed=tests + 19)


def test_every_public_name_is_on_the_page() -> None:
    assert [name for name in testing.__all__ if not re.search(rf"\b{name}\b", PAGE)] == []
