"""One owner at a time; the lock goes with its process."""

import subprocess
import sys
from pathlib import Path

import pytest

from actors.stores.lock import InUse, StoreLock

REPOSITORY = Path(__file__).parents[3]


def test_a_lock_is_held_once_and_free_again_when_it_is_released(tmp_path: Path) -> None:
    first = StoreLock(tmp_path / "lock")
    with pytest.raises(InUse, match=r"^process \d+$"):
        StoreLock(tmp_path / "lock")
    first.release()
    first.release()
    with StoreLock(tmp_path / "lock"):
        pass
    StoreLock(tmp_path / "lock").release()


def test_an_owner_that_has_not_written_its_id_yet_is_another_process(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "lock")
    (tmp_path / "lock").write_text("")
    with pytest.raises(InUse, match=r"^another process$"):
        StoreLock(tmp_path / "lock")
    lock.release()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from actors.stores.lock import StoreLock\n"
        "lock = StoreLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")],
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=REPOSITORY,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(InUse, match=rf"^process {process.pid}$"):
            StoreLock(tmp_path / "lock")
        process.kill()
        process.wait()
        StoreLock(tmp_path / "lock").release()
