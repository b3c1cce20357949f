"""The last way out ends the process, and only if the orderly one did not."""

import subprocess
import sys

PROGRAM = """
import sys, time
from actors.cli.leaving import last_resort
with last_resort(0.05, 7, lambda: print("cleaned up", flush=True)) as resort:
    if sys.argv[1] == "armed":
        resort.arm()
        resort.arm()
        time.sleep(60)
    if sys.argv[1] == "in time":
        resort.arm()
"""


def end(how: str) -> "tuple[int, str, str]":
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, check=False, timeout=30, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_a_process_that_hangs_is_ended_with_its_code() -> None:
    assert end("armed") == (
        7, "cleaned up\n", "actors: something would not end; the process was ended all the same\n"
    )  # fmt: skip


def test_a_process_that_ends_in_order_is_left_alone() -> None:
    assert end("in time") == (0, "", "")
    assert end("not armed") == (0, "", "")
