"""Which lines are points of which curve, and that the same lines are the same picture."""

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from bench import plots
from bench.harness import Line, PeerFigure

drawn = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")


def line(bench: str, n: int, value: float, *, case: str = "", peers: tuple[PeerFigure, ...] = ()) -> Line:
    return Line(
        bench=bench, n=n, value=value, unit="", against="", reference=value / 2, ratio=2.0, goal=None, ok=None,
        case=case or f"{n} pending", goal_here=None, checkpoint_us=3.5, samples=n, repeats=1, spread=(value, value),
        peer=None, note="", peers=peers,
    )  # fmt: skip


PEERS = (
    PeerFigure(name="bare trio", value=90.0),
    PeerFigure(name="asyncio", value=5.0),
    PeerFigure(name="zett-agent", note="not installed"),
)
LINES = [
    line("cancel/all", 100, 60.0, peers=PEERS),
    line("cancel/all", 1_000, 70.0),
    line("cancel/all", 1_000, 99.0, case="1000 by handle"),
    line("cancel/all", 1_000, 9.0, case="loop held by 1000"),
    line("cancel/memory", 1_000, 14.0),
    line("cancel/memory", 10_000, 15.0),
    line("ask/memory", 10_000, 11.0),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, LINES)) + b"\n")
    return path


def test_a_curve_has_the_points_of_the_file_and_no_other() -> None:
    assert plots.collect(LINES, "cancel/all", 1e-6) == {
        "trio-actors": pytest.approx({100: 0.006, 1_000: 0.07}),
        "bare trio, same shape": pytest.approx({100: 0.003, 1_000: 0.035}),
        "asyncio": pytest.approx({100: 0.0005}),
    }
    assert plots.collect(LINES, "cancel/memory", 1e-3)["trio-actors"] == pytest.approx({1_000: 14.0, 10_000: 150.0})


def test_the_lines_of_a_file_are_read(file: Path) -> None:
    assert plots.read_lines(file) == LINES


@drawn
def test_the_same_lines_are_the_same_bytes(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures: list[list[bytes]] = []
    for name in ("one", "two"):
        directory = tmp_path / name
        directory.mkdir()
        assert plots.main([str(file), "--to", str(directory)]) == 0
        written = [Path(text) for text in capsys.readouterr().out.splitlines()]
        assert [path.name for path in written] == [
            "cancel-time.png", "cancel-time.svg", "cancel-memory.png", "cancel-memory.svg",
        ]  # fmt: skip
        pictures.append([path.read_bytes() for path in written])
    assert pictures[0] == pictures[1]
    time_svg = pictures[0][1].decode()
    for text in ("Cancel all pending sessions", "trio-actors", "bare trio, same shape", "asyncio"):
        assert f">{text}</text>" in time_svg
    assert "zett-agent" not in time_svg  # it has no point
    assert "<dc:date>" not in time_svg


def test_without_matplotlib_one_line_says_how_to_get_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert plots.main([str(file), "--to", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "bench.plots: drawing needs matplotlib: pip install 'trio-actors[bench]'\n"
    assert list(tmp_path.glob("*.svg")) == []


@drawn
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nonsense\n", "line 1 of {file!r} is not a line of a bench: JSON is malformed: invalid character (byte 4)"),
        ("", "there is no line of cancel/all with a number of pending sessions"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text(content)
    with pytest.raises(SystemExit) as left:
        plots.main([str(file), "--to", str(tmp_path)])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"bench.plots: {said.format(file=str(file))}\n"


@drawn
def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nothing.jsonl"
    with pytest.raises(SystemExit) as left:
        plots.main([str(file)])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"bench.plots: {str(file)!r}: No such file or directory\n"
