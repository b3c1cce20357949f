"""What may be typed, and what is said about a wrong word."""

import subprocess
import sys

import pytest

from actors.cli.arguments import Options, parse

TURNS = "actors run: argument --max-turns: a number from 1 to 10000 is wanted"


def test_a_command_line_becomes_options() -> None:
    assert parse(["run", "a.md"]) == Options(command="run", file="a.md")
    assert parse(["run", "-", "--answers", "a.json", "--agent", "m:f", "--max-turns", "3", "--log-level", "debug"]) == (
        Options(command="run", file="-", answers="a.json", agent="m:f", max_turns=3, log_level="debug")
    )
    assert parse(["serve", "--host", "::1", "--port", "0", "--allow-host", "a", "--allow-host", "b"]) == (
        Options(command="serve", host="::1", port=0, allow_host=("a", "b"))
    )
    assert parse(["attach", "ws://h", "s", "--create", "--token-file", "t"]) == (
        Options(command="attach", url="ws://h", session="s", create=True, token_file="t")
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "actors: the following arguments are required: COMMAND"),
        (["run"], "actors run: the following arguments are required: FILE"),
        (["run", "a", "--max-turns", "0"], f"{TURNS}, not '0'"),
        (["run", "a", "--max-turns", "²"], f"{TURNS}, not '²'"),
        (["serve", "--port", "65536"], "actors serve: argument --port: a port from 0 to 65535 is wanted, not '65536'"),
        (["run", "a", "--answer", "x"], "actors: unrecognized arguments: --answer x"),
    ],
)
def test_a_wrong_word_is_one_line_and_the_usage(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse(argv)
    assert left.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == message
    assert second.startswith("usage: actors")


def test_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["run", "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n  {code}  " in text for code in ("0  ", "1  ", "2  ", "3  ", "130", "141"))


def test_help_loads_nothing_that_only_a_command_needs() -> None:
    program = (
        "import sys\nfrom actors.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'trio', 'rich', 'pydantic', 'trio_websocket', 'markdown_it'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_attach_says_that_without_a_terminal_it_only_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["attach", "--help"])
    assert "Without a terminal it only watches" in " ".join(capsys.readouterr().out.split())
