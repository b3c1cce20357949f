"""The command as a process: what a shell sees of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONUTF8": "1"}


def actors(*argv: str, text: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "actors", *argv],
        input=text, capture_output=True, encoding="utf-8", check=False, timeout=60, env={**ENVIRONMENT, **environment},
    )  # fmt: skip


def test_the_version_is_told() -> None:
    done = actors("--version")
    assert (done.returncode, done.stdout) == (0, "actors 0.1.0\n")


def test_a_task_comes_through_a_pipe() -> None:
    done = actors("run", "-", text="- one\n- two\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "✔ completed · 2 of 2 done" in done.stdout


def test_an_output_that_cannot_say_everything_is_no_failure() -> None:
    done = actors("run", "-", text="- größer\n", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "x gr??er\n" in done.stdout.replace("\ufffd", "?")


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    task = "".join(f"- step {n}\n" for n in range(30))
    with subprocess.Popen(
        [sys.executable, "-m", "actors", "run", "-", "--max-turns", "100"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(task.encode())
        process.stdin.close()
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 141


def shell(line: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", line, sys.executable], input=text, capture_output=True, encoding="utf-8", check=False, timeout=60,
        env=ENVIRONMENT,
    )  # fmt: skip


def test_a_closed_input_is_an_empty_one() -> None:
    done = shell('"$0" -m actors run - <&-')
    assert (done.returncode, done.stderr) == (2, "actors: standard input is empty: there is nothing to run\n")


def test_a_closed_output_does_not_end_the_run() -> None:
    done = shell('"$0" -m actors run - >&-', "- one\n")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_an_output_without_room_is_a_failure_in_one_line() -> None:
    done = shell('"$0" -m actors run - >/dev/full', "- one\n")
    assert (done.returncode, done.stderr) == (1, "actors: cannot write the output: No space left on device\n")
