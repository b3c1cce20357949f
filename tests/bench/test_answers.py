"""What the durable question is put beside, and that every run is seen to its end."""

from pathlib import Path

from actors import MemoryStore
from actors.stores import SqliteStore
from bench import answers
from bench.harness import Goal


def test_the_rows_compare_what_the_file_adds_with_one_commit() -> None:
    result, whole = answers.ask_overhead(quick=True)
    assert (result.case, whole.case) == ("answer to result", "whole run")
    assert result.goal == Goal(value=1.0, at_most=True, of="ratio") and whole.goal is None
    for row in (result, whole):
        assert row.bench == "store/ask_overhead" and row.unit == "ms"
        assert row.against.startswith("bare sqlite3: ")
        assert row.refer() > 0 and row.measure() > 0


def test_every_run_is_timed_from_its_answer_and_from_its_prompt() -> None:
    folders: list[Path] = []

    def file(folder: Path) -> SqliteStore:
        folders.append(folder)
        return SqliteStore(folder / "s.db")

    for store in (file, lambda _: MemoryStore()):
        times = answers.times_ms(store, 3)
        assert len(times) == 3 and all(0 < result < whole for result, whole in times)
    assert not folders[0].exists()
