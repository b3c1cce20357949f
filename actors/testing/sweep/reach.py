"""Which lines that await were reached: at one of the moments somebody waited or looked there.

It decides what counts as a line that awaits: each `await`, `async for` and `async with` in the source. A line whose
await never gave way is not reached: no cancel could be delivered there.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import CodeType

from actors.testing.checkpoints import Moment


@dataclass(frozen=True, slots=True, order=True)
class Await:
    """One place that awaits.

    Attributes:
        file: As it was given, with what is below it.
        line: Its first line.
        end: Its last line.
        function: The name of the innermost function around it, with what that is in.
        text: The first line, stripped.
    """

    file: str
    line: int
    end: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, in {self.function}: {self.text}"


class Reach:
    """Collects lines at moments. `sweep(..., reach=reach)` tells it of every one.

    Args:
        roots: Source files, or directories with what is below them.
    """

    def __init__(self, roots: Iterable[str | Path]) -> None:
        self.roots = tuple([Path(root) for root in roots])
        self._prefixes = tuple([str(root.resolve()) for root in self.roots])
        self.lines: set[tuple[str, int]] = set()
        self._files: dict[CodeType, str | None] = {}

    def add(self, moment: Moment) -> None:
        """Note where a task is."""
        for code, line in moment.frames():
            try:
                file = self._files[code]
            except KeyError:
                path = str(Path(code.co_filename).resolve())
                file = self._files[code] = path if path.startswith(self._prefixes) else None
            if file is not None:
                self.lines.add((file, line))

    def unreached(self) -> list[Await]:
        """Return the places that await and were not reached, in the order of files and lines."""
        return [
            place
            for path, place in self._places()
            if not any((path, line) in self.lines for line in range(place.line, place.end + 1))
        ]

    def count(self) -> int:
        """Return how many places await."""
        return sum(1 for _ in self._places())

    def _places(self) -> Iterator[tuple[str, Await]]:
        for root in self.roots:
            for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
                for place in sorted(awaits(path.read_text("utf-8"), str(path))):
                    yield str(path.resolve()), place


def awaits(source: str, file: str) -> list[Await]:
    """Return each place in a module that awaits."""
    found = _Finder(source.splitlines(), file)
    found.visit(ast.parse(source, file))
    return found.places


class _Finder(ast.NodeVisitor):
    def __init__(self, lines: Sequence[str], file: str) -> None:
        self.places: list[Await] = []
        self._lines = lines
        self._file = file
        self._inside: list[str] = []

    def _enter(self, node: ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef) -> None:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    visit_AsyncFunctionDef = visit_FunctionDef = visit_ClassDef = _enter

    def visit_Await(self, node: ast.Await) -> None:
        self._add(node.lineno, node.end_lineno)
        self.generic_visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self._add(node.lineno, node.iter.end_lineno)
        self.generic_visit(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        self._add(node.lineno, node.items[-1].context_expr.end_lineno)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        if node.is_async:
            self._add(node.target.lineno, node.iter.end_lineno)
        self.generic_visit(node)

    def _add(self, line: int, end: int | None) -> None:
        text = self._lines[line - 1].strip()
        self.places.append(Await(self._file, line, end or line, ".".join(self._inside) or "<module>", text))


def read_reasons(text: str) -> list[tuple[str, str]]:
    """Read why places are not reached: lines of a pattern and a reason, with `#` before what is neither.

    A pattern is `file:function`, with `*` and `?`: `shop/cli/*:* needs a terminal`.

    Raises:
        ValueError: A line without a reason.
    """
    reasons: list[tuple[str, str]] = []
    for line in text.splitlines():
        pattern, _, reason = line.strip().partition(" ")
        if not pattern or pattern.startswith("#"):
            continue
        if not reason.strip():
            raise ValueError(f"{line!r}: a pattern, then the reason why what it matches is not reached")
        reasons.append((pattern, reason.strip()))
    return reasons


def explain(places: Sequence[Await], reasons: Sequence[tuple[str, str]]) -> tuple[list[Await], list[str]]:
    """Return the places without a reason, and the patterns that match nothing: what was reached needs none."""
    used: set[str] = set()
    left: list[Await] = []
    for place in places:
        for pattern, _ in reasons:
            if fnmatchcase(f"{place.file}:{place.function}", pattern):
                used.add(pattern)
                break
        else:
            left.append(place)
    return left, [pattern for pattern, _ in reasons if pattern not in used]
