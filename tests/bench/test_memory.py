"""Memory is measured in a process of its own, as growth."""

import sys
from pathlib import Path

import pytest
import trio

from bench import memory
from bench.shape import Entered, TaskShape

USAGE = (
    "bench.memory: takes a kind (ask, bare, actor, task, pending, shape), how many sessions, and with shape a shape\n"
)
SHAPE = TaskShape((Entered((TaskShape((Entered(None, True),)),)),))


@pytest.mark.parametrize("kind", memory.KINDS)
def test_a_new_process_grows_by_every_session(kind: str) -> None:
    # Two parked trio tasks are kilobytes; a figure beyond 100 kB would be something else than sessions.
    assert 1_000 < memory.bytes_per_session(kind, 300, SHAPE if kind == "shape" else None) < 100_000


def test_a_shape_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory.main(["shape", "3", "{}"]) == 2
    said = "bench.memory: '{}' is no shape: Expected `array`, got `object`\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("text", "there"),
    [("MemTotal:  9 kB\nMemAvailable:   24 kB\n", 24 * 1_024), ("MemTotal:  9 kB\n", None), (None, None)],
)
def test_available_memory_is_what_the_system_says(
    text: str | None, there: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meminfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(memory, "_MEMINFO", file)
    assert memory.available_bytes() == there


def test_a_process_that_fails_is_told_with_its_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=r"^the process that measures 5 sessions \(nothing\) ended with 2$"):
        memory.bytes_per_session("nothing", 5)
    assert capfd.readouterr().err == USAGE


@pytest.mark.parametrize(
    "argv",
    [
        [], ["ask"], ["ask", "0"], ["ask", "-1"], ["ask", "many"], ["other", "3"],
        ["shape", "3"], ["ask", "3", "[]"], ["shape", "3", "[]", "x"],
    ],
)  # fmt: skip
def test_arguments_that_say_nothing_measurable_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert memory.main(argv) == 2
    assert capsys.readouterr().err == USAGE


async def test_growth_is_that_of_the_sessions_and_not_of_what_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sizes = iter([1_000_000, 4_000_000])

    async def prepare(n: int) -> None:
        await trio.lowlevel.checkpoint()
        done.append(f"prepare {n}")

    def read() -> int:
        done.append("read")
        return next(sizes)

    monkeypatch.setattr(memory, "resident_bytes", read)
    assert await memory.growth_per_session(prepare, 300) == 10_000
    assert done == ["prepare 3", "read", "prepare 300", "read"]


def test_where_there_is_no_proc_the_peak_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STATM", Path("/nonexistent/statm"))
    assert memory.resident_bytes() > 0


def test_the_process_needs_no_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert memory.bytes_per_session("bare", 50) > 0
