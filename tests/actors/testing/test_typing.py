"""What type checkers say about the kit, and about the code of its page."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")

RIGHT = """
from collections.abc import Callable
from typing import assert_type
from actors.runtime import Ctx, Down, Ref, Replies, System
from actors.testing import (
    Fault, MakeProbe, Probe, check_conservation, conserving, every_checkpoint, inject, open_probe, run, seeded, seeds
)

class Add(Replies[int]): ...
class Tick: ...

async def body(ctx: Ctx[Add | Tick], other: Ref[Tick]) -> None: ...
async def number(n: int) -> int:
    return n

async def use(system: System, probe: MakeProbe, actor: Ref[Tick]) -> None:
    made = await open_probe(system, name="p")
    assert_type(made, Probe)
    assert_type(made.ref, Ref[object])
    assert_type(await made.expect(Add), Add)
    assert_type((await made.expect(Add)).reply.send(3), bool)
    assert_type(await made.expect(Down, within=2), Down)
    assert_type(made.received, tuple[object, ...])
    made.watch(actor)
    await system.spawn(body, made.ref)
    async with probe() as other:
        assert_type(other, Probe)
    assert_type(await probe(name="q"), Probe)
    with conserving(), seeded(3), inject(1, OSError, tasks="actor *") as fault:
        assert_type(fault, Fault)
    check_conservation(system)

def sync() -> None:
    assert_type(run(number, 3), int)
    assert_type(run(number, 3, seed=1, clock="real", limit_s=10), int)
    assert_type(run(number, 3, fault=inject(1, "cancel")), int | None)
    for n in every_checkpoint(number, 3, seed=1):
        run(number, 3, fault=inject(n, OSError("disk full")))
        run(number, 3, fault=inject(n, print))

@seeds(3)
async def under_seeds(name: str) -> None: ...
typed: Callable[[str], None] = under_seeds
"""

WRONG = [
    'run(number, "three")',
    'run(number, 3, clock="slow")',
    'every_checkpoint(number, "three")',
    'inject(1, "kill")',
    "seeds(3)(sync)",
    "under_seeds(3)",
    "Probe().watch(3)",
]


def _files(tmp_path: Path) -> tuple[list[str], set[int]]:
    """Write what is to be checked; return the files, and the lines of the first that are errors."""
    wrong = "".join(f"    {line}\n" for line in WRONG)
    (tmp_path / "kit.py").write_text(f"{RIGHT}\ndef misuse() -> None:\n{wrong}")
    (tmp_path / "page.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
    first = RIGHT.count("\n") + 3
    return [str(tmp_path / "kit.py"), str(tmp_path / "page.py")], set(range(first, first + len(WRONG)))


def _errors(said: str, name: str) -> set[int]:
    return {int(line) for line in re.findall(rf"{name}:(\d+).*error:", said)}


def test_mypy_follows_the_types_and_finds_misuse(tmp_path: Path) -> None:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    files, lines = _files(tmp_path)
    command = [sys.executable, "-m", "mypy", "--config-file", "", "--cache-dir", str(tmp_path / "cache"), "--strict"]
    environment = {"MYPYPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(
        [*command, *files], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode in (0, 1), done.stderr
    assert (_errors(done.stdout, "kit.py"), _errors(done.stdout, "page.py")) == (lines, set()), done.stdout


def test_pyright_follows_the_types_and_finds_misuse(tmp_path: Path) -> None:
    if find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    _, lines = _files(tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(f'{{"typeCheckingMode": "standard", "extraPaths": ["{ROOT}"]}}')
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    assert (_errors(done.stdout, "kit.py"), _errors(done.stdout, "page.py")) == (lines, set()), done.stdout
