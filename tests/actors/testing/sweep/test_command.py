import subprocess
import sys
from pathlib import Path

import pytest

from actors.testing.sweep.command import main

_MODULE = '''
"""A shop."""
import trio
from actors.testing.sweep import Stage, scenario

taken = []

@scenario
async def careless(stage: Stage) -> None:
    """Takes something."""
    taken.clear()

    def given_back() -> None:
        assert not taken, "still taken"

    stage.afterwards(given_back)
    stage.fault("poke", lambda: None)
    await trio.sleep(1)
    taken.append("it")
    await trio.sleep(1)
    taken.clear()

@scenario(faults=["cancel", "error"])
async def tidy(stage: Stage) -> None:
    await trio.sleep(1)
    await at_once()

async def at_once() -> None: ...

@scenario
async def broken(stage: Stage) -> None:
    await trio.sleep(1)
    raise ValueError("no")
'''
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = tmp_path / "corner_shop.py"
    module.write_text(_MODULE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("corner_shop", None)
    return module


def test_a_scenario_that_holds_is_one_line_and_zero(capsys: Capture) -> None:
    assert main(["corner_shop:tidy"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "corner_shop:tidy: 1 checkpoints, 3 plays, all held",
        "1 scenarios, 1 checkpoints, 3 plays, 0 broken",
    ]


def test_what_is_broken_is_told_with_the_command_that_repeats_it(capsys: Capture, shop: Path) -> None:
    assert main(["corner_shop:careless"]) == 1
    out = capsys.readouterr().out
    assert "corner_shop:careless, cancel@2, seed 0: AssertionError: still taken" in out
    assert f"    {shop}:20, in careless" in out
    again = next(line for line in out.splitlines() if "again: " in line).split("-m actors.testing.sweep ")[1]
    assert main(again.split()) == 1
    out = capsys.readouterr().out
    assert "corner_shop:careless, cancel@2, seed 0: AssertionError: still taken" in out
    assert "Traceback" in out


def test_the_command_works_in_a_process_of_its_own(shop: Path) -> None:
    arguments = ["corner_shop:careless", "--fault", "cancel", "--processes", "2"]
    command = [sys.executable, "-m", "actors.testing.sweep", *arguments]
    done = subprocess.run(command, cwd=shop.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "corner_shop:careless, cancel@2, seed 0" in done.stdout


def test_a_case_that_holds_says_where_it_strikes(capsys: Capture, shop: Path) -> None:
    assert main(["corner_shop:careless", "--case", "cancel@1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("corner_shop:careless, cancel@1, seed 0: held; it struck corner_shop:careless, at\n")
    assert f"{shop}:18, in careless" in out


def test_what_breaks_undisturbed_is_told(capsys: Capture) -> None:
    assert main(["corner_shop:broken"]) == 1
    assert "corner_shop:broken, undisturbed, seed 0: ValueError: no" in capsys.readouterr().out
    assert main(["corner_shop:broken", "--case", "cancel@1"]) == 1
    assert "ValueError: no" in capsys.readouterr().out


def test_a_module_stands_for_all_its_scenarios(capsys: Capture) -> None:
    assert main(["corner_shop", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "corner_shop:careless  Takes something.", "corner_shop:tidy", "corner_shop:broken",
    ]  # fmt: skip


def test_lines_that_await_and_are_not_reached_need_a_reason(capsys: Capture, shop: Path) -> None:
    assert main(["corner_shop:tidy", "--reach", str(shop)]) == 1
    out = capsys.readouterr().out
    assert f"  not reached: {shop}:26, in tidy: await at_once()" in out
    reasons = shop.parent / "reasons.txt"
    reasons.write_text("*:tidy  does not give way\n*:careless  not swept here\n*:broken  neither\n", "utf-8")
    assert main(["corner_shop:tidy", "--reach", str(shop), "--reasons", str(reasons)]) == 0
    assert "of 5 lines that await, 1 were reached, 4 have a reason" in capsys.readouterr().out
    reasons.write_text(reasons.read_text("utf-8") + "*:nobody  is not there\n", "utf-8")
    assert main(["corner_shop:tidy", "--reach", str(shop), "--reasons", str(reasons)]) == 1
    assert "  nothing needs this reason: *:nobody" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no_such_module"], "there is no module 'no_such_module': No module named 'no_such_module'"),
        (["corner_shop:nobody"], "there is no scenario 'corner_shop:nobody': "),
        (["corner_shop:tidy", "--fault", "poke"], "corner_shop:tidy has no fault poke; it has cancel, error"),
        (["corner_shop:tidy", "--fault", "a b"], "'a b' is no fault; they look like "),
        (["corner_shop:tidy", "--case", "cancel"], "'cancel' has no moment: a case is, for example, 'cancel@41'"),
        (["corner_shop:tidy", "--case", "poke@1"], "corner_shop:tidy has no fault poke; it has cancel, error"),
        (["corner_shop:tidy", "--case", "cancel@99"], "moments under seed 0, so none is 99"),
        (["corner_shop", "--case", "cancel@1"], "a case is of one scenario; these are corner_shop:careless, "),
        (["corner_shop", "--stride", "0"], "argument --stride: invalid positive number value: '0'"),
        (["corner_shop", "--reasons", "none.txt"], "'none.txt' cannot be read: No such file or directory"),
        ([], "the following arguments are required: SCENARIO"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_said_in_one_line(arguments: list[str], said: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("actors.testing.sweep: ")
    assert said in err
    assert err.count("\n") == 1


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("actors.testing.sweep.command.sweep", interrupted)
    assert main(["corner_shop:tidy"]) == 130
