"""Which benches are run, and where their lines go. The benches here are rows of fixed numbers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import bare, command
from bench.harness import Row

ALL = [
    "agent/one_turn", "agent/todo_write", "ask/roundtrip", "ask/memory",
    "runtime/tell", "runtime/send", "runtime/ask", "runtime/fanout", "runtime/spawn", "runtime/idle", "runtime/stop",
    "cancel/all", "cancel/one", "cancel/setup", "cancel/memory", "cancel/random", "cancel/end",
    "store/append_grouped", "store/latency", "store/reload", "store/open", "store/ask_overhead",
]  # fmt: skip


def fixed(bench: str, measure: Callable[[], float] = lambda: 6.0) -> Callable[..., list[Row]]:
    def rows(*, quick: bool) -> list[Row]:
        """Fixed numbers."""
        n = 1 if quick else 1_000
        return [
            Row(
                bench=bench, case=f"n={n}", n=n, unit="us", samples=n, repeats=1,
                measure=measure, against="fixed", refer=lambda: 2.0,
            )
        ]  # fmt: skip

    return rows


@pytest.fixture
def fixed_benches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BENCHES", {"agent/a": fixed("agent/a"), "ask/b": fixed("ask/b")})
    monkeypatch.setattr(bare, "checkpoint_us", lambda n: 3.5)


def test_without_a_name_all_benches_are_meant() -> None:
    assert command.choose([]) == ALL


def test_a_name_or_a_group_means_each_bench_once_in_the_order_of_the_list() -> None:
    assert command.choose(["ask/memory", "agent", "agent/one_turn"]) == [*ALL[:2], "ask/memory"]
    assert command.choose(["runtime"]) == ALL[4:11]
    assert command.choose(["cancel"]) == ALL[11:17]


@pytest.mark.parametrize("name", ["nonsense", "agent/", "one_turn", "ask/round", ""])
def test_an_unknown_name_is_refused_in_one_line_and_nothing_is_measured(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(["agent", name])
    out, err = capsys.readouterr()
    assert left.value.code == 2
    assert (out, err) == ("", f"bench: there is no bench {name!r}; there are {', '.join(ALL)}\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--jsn", "x"], "unrecognized arguments: --jsn"),
        (["--json"], "argument --json: expected one argument"),
        (["--qui"], "unrecognized arguments: --qui"),
        (["--cancels", "many"], "argument --cancels: invalid int value: 'many'"),
        (["cancel", "--cancels", "0"], "--cancels takes at least 1, not 0"),
        (
            ["ask", "--cancels", "5"],
            "--cancels says how many cancel/random makes, and that is not among ask/roundtrip, ask/memory",
        ),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(argv)
    out, err = capsys.readouterr()
    assert (left.value.code, out, err) == (2, "", f"bench: {message}\n")


def test_list_names_every_bench_with_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ALL
    assert lines[0] == "agent/one_turn        A run of one model call and no tool."


@pytest.mark.usefixtures("fixed_benches")
def test_lines_go_to_stdout_and_the_table_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["bench"], line["n"], line["ratio"]) for line in lines] == [
        ("agent/a", 1_000, 3.0),
        ("ask/b", 1_000, 3.0),
    ]
    assert err.startswith("bench ")
    assert "{" not in err


@pytest.mark.usefixtures("fixed_benches")
def test_quick_says_its_own_n(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["ask", "--quick"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 1


@pytest.mark.usefixtures("fixed_benches")
def test_json_writes_the_lines_to_the_file_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines.jsonl"
    assert command.main(["--json", str(file)]) == 0
    assert [json.loads(line)["bench"] for line in file.read_text().splitlines()] == ["agent/a", "ask/b"]
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("fixed_benches")
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nowhere" / "lines.jsonl"
    with pytest.raises(SystemExit) as left:
        command.main(["--json", str(file)])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"bench: {str(file)!r} cannot be written: No such file or directory\n"


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [(RuntimeError("the process ended"), 1, "bench: the process ended"), (KeyboardInterrupt(), 130, None)],
)
def test_what_was_measured_before_the_end_is_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    exit_code: int,
    said: str | None,
) -> None:
    def measure() -> float:
        raise error

    monkeypatch.setattr(command, "BENCHES", {"agent/a": fixed("agent/a"), "ask/b": fixed("ask/b", measure)})
    monkeypatch.setattr(bare, "checkpoint_us", lambda n: 3.5)
    assert command.main([]) == exit_code
    out, err = capsys.readouterr()
    assert json.loads(out)["bench"] == "agent/a"
    if said is not None:
        assert err.splitlines()[-1] == said


def test_the_number_of_cancels_goes_to_the_bench_that_makes_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, object]] = []

    def rows(**options: object) -> list[Row]:
        asked.append(options)
        return []

    monkeypatch.setattr(command, "BENCHES", {"cancel/all": rows, "cancel/random": rows})
    assert command.main(["cancel", "--cancels", "1000000"]) == 0
    assert asked == [{"quick": False}, {"quick": False, "cancels": 1_000_000}]
