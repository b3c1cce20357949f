"""The page on durable sessions is a test file, and its commands are those there are."""

import re
from pathlib import Path

import pytest

from actors.cli.arguments import parse

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[3] / "docs" / "durability.md").read_text(encoding="utf-8")
CODE = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


def test_the_code_of_the_page_on_durability_passes(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntrio_mode = true\nfilterwarnings = error")
    pytester.makepyfile(CODE)
    pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.parametrize("action", ["list", "show", "export", "import", "delete", "doctor", "backup"])
def test_every_action_is_on_the_page_and_takes_a_store(action: str) -> None:
    assert f"`actors sessions {action}" in PAGE
    more = {"show": ["s"], "export": ["--all"], "import": ["f"], "delete": ["s"], "backup": ["f"]}.get(action, [])
    assert parse(["sessions", action, *more, "--store", "f.db"]).store == "f.db"
