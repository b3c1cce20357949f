"""A load counts what arrived, whoever received it."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.messages import Tally


def test_the_last_receiver_finishes_a_tally_and_no_other_does() -> None:
    finished: list[str] = []
    tally = Tally(2, lambda: finished.append("now"))
    tally.add(3)
    assert finished == []
    tally.add(4)
    assert finished == ["now"]
    tally.check(7)


def test_a_load_that_lost_messages_fails_instead_of_looking_fast() -> None:
    tally = Tally(1, lambda: None)
    tally.add(6)
    with pytest.raises(RuntimeError, match=r"^7 messages were sent and 6 of them handled$"):
        tally.check(7)


def test_peers_are_measured_without_trio_and_without_the_library() -> None:
    program = "import sys, bench.messages, bench.peers.sizes; print(sorted({'trio', 'actors'} & set(sys.modules)))"
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
