"""The last way out ends the process, and only if the orderly one did not."""

import subprocess
import sys

PROGRAM = """
import sys, time
from actors.cli.leaving import last_resort
with last_resort(0.05, 7) as resort:
    if sys.argv[1] == "armed":
        resort.arm()
        resort.arm()
        time.sleep(60)
    if sys.argv[1] == "in time":
        resort.arm()
"""


def end(how: str) -> int:
    return subprocess.run([sys.executable, "-c", PROGRAM, how], check=False, timeout=30).returncode


def test_a_process_that_hangs_is_ended_with_its_code() -> None:
    assert end("armed") == 7


def test_a_process_that_ends_in_order_is_left_alone() -> None:
    assert end("in time") == 0
    assert end("not armed") == 0
