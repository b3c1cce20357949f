"""What a type checker says about actors, checked by running one."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

RIGHT = """
from typing import assert_type
import msgspec
from actors.runtime import Ctx, Ref, Replies, System

class Add(Replies[int], msgspec.Struct):
    n: int

class Name(Replies[str | None]): ...
class Tick: ...
class Other(Replies[int]): ...

async def counter(ctx: Ctx[Add | Name | Tick], start: int) -> None:
    async for message in ctx:
        assert_type(message, Add | Name | Tick)
        if isinstance(message, Add):
            message.reply.send(message.n + start)

async def use(system: System) -> None:
    ref = await system.spawn(counter, 1, name="counter")
    assert_type(ref, Ref[Add | Name | Tick])
    assert_type(await ref.ask(Add(1)), int)
    assert_type(await ref.ask(Name(), within=1.0), str | None)
    assert_type(ref.tell(Tick()), bool)
    narrower: Ref[Tick] = ref
    narrower.tell(Tick())
    sup = await system.supervise(name="sup", restart="transient", intensity=(3, 10.0))
    assert_type(await sup.spawn(counter, 1), Ref[Add | Name | Tick])
"""

WRONG = [
    "await ref.ask(Other())",
    "await ref.ask(Tick())",
    'ref.tell("text")',
    "await ref.send(3)",
    'await system.spawn(counter, "one")',
    'Add(1).reply.send("text")',
    "wider: Ref[Tick | str] = ref",
]


def check(tmp_path: Path, source: str) -> str:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    file = tmp_path / "example.py"
    file.write_text(source)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--hide-error-context", str(file)]
    command[4:4] = ["--config-file", "", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if "example.py" in line)


def test_an_ask_has_the_type_of_its_reply_and_wrong_messages_are_errors(tmp_path: Path) -> None:
    wrong = "".join(f"    {line}\n" for line in WRONG)
    source = f"{RIGHT}\nasync def misuse(system: System, ref: Ref[Add | Name | Tick]) -> None:\n{wrong}"
    first = source.count("\n") - len(WRONG) + 1
    said = check(tmp_path, source)
    lines = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
    assert lines == set(range(first, first + len(WRONG))), said
