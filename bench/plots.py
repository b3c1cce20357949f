"""`python -m bench.plots FILE`: plots of what `cancel/all` and `cancel/memory` took against the number of sessions.

It decides which lines of the file are points of which curve; it measures nothing and makes no figure up: a curve has
the points that the file has. The same file gives the same bytes with the same release of matplotlib.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from bench.harness import Line

PLOTTED = 0
FAILED = 1
USAGE = 2

_DESCRIPTION = "Plot what cancel/all and cancel/memory took against the number of sessions."
_IMAGES = Path(__file__).resolve().parent.parent / "docs" / "img"
_OURS = "trio-actors"
_BARE = "bare trio, same shape"
#: In this order, each always in its own colour, whichever of them a file has.
_STYLES: dict[str, dict[str, Any]] = {
    _OURS: {"color": "#0b6e4f", "marker": "o", "linewidth": 2.2, "zorder": 4},
    _BARE: {"color": "#1f4e9e", "marker": "s", "linestyle": "--"},
    "asyncio": {"color": "#7a7a7a", "marker": "^", "linestyle": ":"},
    "zett-agent": {"color": "#c0392b", "marker": "D", "linestyle": "-."},
}
Points = dict[int, float]
Curves = Mapping[str, Points]


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a file that `python -m bench --json` wrote.

    Raises:
        ValueError: A line is none; says which.
        OSError: The file cannot be read.
    """
    lines: list[Line] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(msgspec.json.decode(text, type=Line))
        except msgspec.MsgspecError as error:
            raise ValueError(f"line {number} of {str(path)!r} is not a line of a bench: {error}") from None
    return lines


def collect(lines: Sequence[Line], bench: str, scale: float) -> Curves:
    """Return the points of each curve, for all sessions together.

    Args:
        lines: Of one run; other benches and other cases than `<n> pending` are left out.
        bench: Which of them.
        scale: What one of its units is, in the unit of the plot.
    """
    curves: dict[str, Points] = defaultdict(dict)
    for line in lines:
        if line.bench != bench or line.case != f"{line.n} pending":
            continue
        curves[_OURS][line.n] = line.value * line.n * scale
        curves[_BARE][line.n] = line.reference * line.n * scale
        for peer in line.peers:
            if peer.value is not None and peer.name in _STYLES:
                curves[peer.name][line.n] = peer.value * line.n * scale
    return curves


def plot(lines: Sequence[Line], directory: Path) -> list[Path]:
    """Write `cancel-time` and `cancel-memory`, each as PNG and as SVG, and return what was written.

    Raises:
        ValueError: The lines have no point for one of them; nothing was written then.
    """
    wanted = (
        ("cancel/all", 1e-6, "cancel-time", "Cancel all pending sessions", "seconds until every run has ended"),
        ("cancel/memory", 1e-3, "cancel-memory", "Memory of pending sessions", "megabytes that the process grows by"),
    )
    found = [collect(lines, bench, scale) for bench, scale, _, _, _ in wanted]
    for curves, (bench, *_) in zip(found, wanted, strict=True):
        if not curves:
            raise ValueError(f"there is no line of {bench} with a number of pending sessions")
    written: list[Path] = []
    for curves, (_, _, name, title, unit) in zip(found, wanted, strict=True):
        written += _draw(curves, directory / name, title, unit)
    return written


def _draw(curves: Curves, path: Path, title: str, unit: str) -> list[Path]:
    # Not at the top: it is not needed to measure, so a machine that measures need not have it.
    matplotlib: Any = import_module("matplotlib")
    new_figure: Any = import_module("matplotlib.figure").Figure

    settings = {"svg.hashsalt": path.name, "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 11}
    with matplotlib.rc_context(settings):
        figure = new_figure(figsize=(7.2, 4.6), layout="constrained")
        axes = figure.subplots()
        for name, style in _STYLES.items():
            points = sorted(curves.get(name, {}).items())
            if points:
                axes.plot(*zip(*points, strict=True), label=name, markersize=5.5, **style)
        axes.set(xscale="log", yscale="log", title=title, xlabel="pending sessions", ylabel=unit)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.set_minor_formatter("")
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        written = [path.with_suffix(".png"), path.with_suffix(".svg")]
        # Neither the day nor the release is in them: the same lines are the same picture.
        figure.savefig(written[0], dpi=150, metadata={"Software": None})
        figure.savefig(written[1], metadata={"Date": None, "Creator": None})
    return written


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Read, draw, say what was written; return the exit code.

    Args:
        argv: The arguments; None takes those of the process.

    Raises:
        SystemExit: 0 after `--help`, 2 after a wrong argument or a file that is none.
    """
    parser = _Parser(prog="bench.plots", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", type=Path, help="what python -m bench cancel --json FILE has written")
    parser.add_argument("--to", metavar="DIRECTORY", type=Path, default=_IMAGES, help="where to; default docs/img")
    options = parser.parse_args(argv)
    if find_spec("matplotlib") is None:
        print("bench.plots: drawing needs matplotlib: pip install 'trio-actors[bench]'", file=sys.stderr)
        return FAILED
    try:
        written = plot(read_lines(options.file), options.to)
    except OSError as error:
        parser.error(f"{error.filename!r}: {error.strerror}")
    except ValueError as error:
        parser.error(str(error))
    for path in written:
        print(path)
    return PLOTTED


if __name__ == "__main__":
    sys.exit(main())
