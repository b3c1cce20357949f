"""The same lines for a person: one row of a table for each, as soon as it is there. Pure."""

from bench.harness import Line, PeerFigure

_WIDTHS = (18, 22, 10, 12, 10, 6, 12, 6)
_HEADS = ("bench", "case", "value", "unit", "reference", "ratio", "goal here", "")


def head() -> str:
    """Return the table's first line."""
    return _columns(_HEADS)


def row(line: Line) -> str:
    """Return one line of the table. `reference` is what the legend says, `goal here` the goal on this machine.

    A goal that bounds the ratio says so: `>= 7.00x`.
    """
    value, reference, ratio = number(line.value), number(line.reference), f"{line.ratio:.2f}"
    goal = "-" if line.goal_here is None else number(line.goal_here)
    if line.goal_of == "ratio":
        goal = f"{'<=' if line.goal_at_most else '>='} {goal}x"
    verdict = "" if line.ok is None else "ok" if line.ok else "MISSED"
    return _columns((line.bench, line.case, value, line.unit, reference, ratio, goal, verdict))


def legend(line: Line) -> str:
    """Return what belongs to the row and does not fit into it, in two lines, or three if it has peers."""
    low, high = line.spread
    said = [f"{line.repeats} repeats: {number(low)} to {number(high)}", f"checkpoint {line.checkpoint_us:.2f} us"]
    if line.peer is not None:
        said.append(f"{line.peer.name}, measured elsewhere: {number(line.peer.value)}")
    if line.note:
        said.append(line.note)
    lines = [f"    {'; '.join(said)}", f"    reference: {line.against}"]
    if line.peers:
        lines.append(f"    peers: {'; '.join(map(_peer, line.peers))}")
    return "\n".join(lines)


def _peer(peer: PeerFigure) -> str:
    name = peer.name if peer.version is None else f"{peer.name} {peer.version}"
    if peer.value is None:
        return f"{name} not measured ({peer.note})"
    figures = number(peer.value) if peer.ratio is None else f"{number(peer.value)}, ours is {peer.ratio:.2f}x that"
    verdict = "" if peer.ahead is not False else ", AHEAD OF OURS"
    note = f" ({peer.note})" if peer.note else ""
    return f"{name} {figures}{verdict}{note}"


def number(value: float) -> str:
    """Return a number with the digits that mean something: `12,345`, `123`, `12.3`, `1.23`."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _columns(cells: tuple[str, ...]) -> str:
    left = 2  # names to the left, figures to the right
    placed = [
        cell.ljust(width) if index < left or index in (3, 7) else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ]
    return " ".join(placed).rstrip()
