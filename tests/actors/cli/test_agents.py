"""`--agent` finds a callable, or says in one line what is missing."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from actors.cli.agents import check_agent, default_agent, find_factory, make_agent
from actors.cli.codes import CommandFailed


def failed(spec: str) -> tuple[int, str]:
    with pytest.raises(CommandFailed) as refused:
        find_factory(spec)
    return refused.value.exit_code, str(refused.value)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory that is not on the path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_without_a_name_it_is_the_embedded_agent() -> None:
    assert find_factory("") is default_agent


def test_a_module_in_the_current_directory_is_found(here: Path) -> None:
    (here / "agents_of_mine.py").write_text("class Box:\n    @staticmethod\n    def make(): return 5\n")
    assert find_factory("agents_of_mine:Box.make")() == 5


@pytest.mark.parametrize("spec", ["x", ":f", "m:", ""[:0] + ":"])
def test_a_spec_of_another_shape_is_refused(spec: str) -> None:
    assert failed(spec) == (2, f"--agent is MODULE:NAME, for example mypackage.agents:make, not {spec!r}")


def test_a_missing_module_and_a_module_that_misses_one_are_told_apart(here: Path) -> None:
    (here / "needs_another.py").write_text("import not_there_at_all")
    assert failed("not_there:f") == (2, "--agent: there is no module not_there")
    assert failed("json.not_there:f") == (2, "--agent: there is no module json.not_there")
    assert failed("needs_another:f") == (
        2, "--agent: importing needs_another failed: there is no module not_there_at_all"
    )  # fmt: skip


def test_a_module_that_fails_says_how(here: Path) -> None:
    (here / "breaks_apart.py").write_text("1 / 0")
    assert failed("breaks_apart:f") == (
        2, "--agent: importing breaks_apart failed: ZeroDivisionError: division by zero"
    )  # fmt: skip


def test_a_name_that_is_missing_or_cannot_be_called_is_refused() -> None:
    assert failed("json:nothing") == (2, "--agent: module json has no nothing")
    assert failed("json:__name__") == (2, "--agent: json:__name__ is not callable, but of type str")


def test_what_the_callable_returns_must_be_an_agent_to_be_opened() -> None:
    with pytest.raises(CommandFailed, match=r"^--agent: m:f\(\) must return an async context manager, as open_agent"):
        make_agent(lambda: 5, "m:f")
    with pytest.raises(CommandFailed, match=r"^--agent: m:f\(\) raised ZeroDivisionError: division by zero$"):
        make_agent(lambda: 1 / 0, "m:f")

    @asynccontextmanager
    async def opened():  # type: ignore[no-untyped-def]
        yield

    made = opened()
    assert make_agent(lambda: made, "m:f") is made


async def never_awaited() -> None:
    await trio.lowlevel.checkpoint()


def test_an_async_callable_is_refused_without_a_warning() -> None:
    with pytest.raises(CommandFailed, match=r"^--agent: m:f\(\) must return an async .*, not coroutine$"):
        make_agent(never_awaited, "m:f")


async def test_what_is_opened_must_be_an_agent() -> None:
    async with default_agent() as agent:
        check_agent(agent, "")
    with pytest.raises(CommandFailed) as refused:
        check_agent(5, "m:f")
    assert (refused.value.exit_code, str(refused.value)) == (
        2, "--agent: m:f() must open an agent, as open_agent(...) does, not an object of type int"
    )  # fmt: skip
