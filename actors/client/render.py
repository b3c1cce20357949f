"""How a view looks: blocks that stay, and the live area below them. No I/O; the console drawn on has the sizes."""

from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from actors.client.blocks import Block, Ended, Mark, Noted, Prompted, Said
from actors.client.dialogue import Dialogue, hint
from actors.client.text import clean, one_line, tail
from actors.client.view import View
from protocol.asks import Ask, AskOutcome, Question
from protocol.todos import TodoItem, TodoStatus

MAX_STREAMED_LINES = 8
MAX_TOOLS = 4

Lines = list[list[Segment]]

_UNICODE = {Mark.DONE: "✔", Mark.ACTIVE: "▶", Mark.OPEN: "○", Mark.INTERRUPTED: "■", Mark.TOOL: "⚙", Mark.FAILED: "✖", Mark.INFO: "·"}  # fmt: skip  # noqa: E501
_ASCII = {Mark.DONE: "x", Mark.ACTIVE: ">", Mark.OPEN: "-", Mark.INTERRUPTED: "!", Mark.TOOL: "*", Mark.FAILED: "!", Mark.INFO: "."}  # fmt: skip  # noqa: E501
_STYLES = {Mark.DONE: "green", Mark.ACTIVE: "bold cyan", Mark.OPEN: "dim", Mark.INTERRUPTED: "yellow", Mark.TOOL: "blue", Mark.FAILED: "red", Mark.INFO: "dim"}  # fmt: skip  # noqa: E501
_ITEM_MARKS = {TodoStatus.COMPLETED: Mark.DONE, TodoStatus.IN_PROGRESS: Mark.ACTIVE, TodoStatus.PENDING: Mark.OPEN}
_OUTCOMES = {
    AskOutcome.ANSWERED: "", AskOutcome.DECLINED: "declined", AskOutcome.TIMED_OUT: "timed out",
    AskOutcome.CANCELLED: "cancelled", AskOutcome.NO_RESPONDER: "nobody there to answer",
}  # fmt: skip


def signs(encoding: str) -> dict[Mark, str]:
    """Return the signs that can be written in `encoding`."""
    try:
        "".join(_UNICODE.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _UNICODE


def outcome_line(ended: Ended) -> tuple[Mark, str]:
    """Return the last line of a run."""
    mark = {"completed": Mark.DONE, "failed": Mark.FAILED}.get(ended.kind, Mark.INTERRUPTED)
    parts = [ended.kind]
    if ended.total:
        parts.append(f"{ended.done} of {ended.total} done")
    if ended.turns:
        parts.append(f"{ended.turns} turn{'s' if ended.turns != 1 else ''}")
    why = f": {one_line(ended.message)}" if ended.message else ""
    code = f" ({ended.code})" if ended.kind == "failed" else ""
    return mark, " · ".join(parts) + code + why


def plain(block: Block, marks: dict[Mark, str]) -> str:
    """Return a block as text without any escape code."""
    match block:
        case Prompted(text):
            return f"> {_title(text)}"
        case Said(text):
            said = clean(text).strip()
            return f"\n{said}\n" if "\n" in said else said
        case Noted(mark, text):
            return f"{marks[mark]} {one_line(text)}"
        case Ended():
            mark, text = outcome_line(block)
            return f"{marks[mark]} {text}"
        case _:
            said = one_line(block.answer) if block.outcome is AskOutcome.ANSWERED else f"({_OUTCOMES[block.outcome]})"
            return f"? {_pathed(block.path)}{one_line(block.question)}\n  {said}"


class _Clean:
    """A renderable whose text is clean once more after rendering: Markdown can spell any character as an entity."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)


def rich_block(block: Block, marks: dict[Mark, str]) -> RenderableType:
    """Return a block as it stays above the live area."""
    match block:
        case Prompted(text):
            return Text(f"» {_title(text)}", style="dim")
        case Said(text):
            below = 1 if "\n" in text.strip() else 0
            return Padding(_Clean(Markdown(clean(text), hyperlinks=False)), (below, 0, below, 0))
        case Noted(mark, text):
            return _marked(marks[mark], one_line(text, 400), _STYLES[mark])
        case Ended():
            mark, text = outcome_line(block)
            return _marked(marks[mark], text, "bold " + _STYLES[mark])
        case _:
            line = Text()
            line.append("? ", style="magenta").append(_pathed(block.path) + one_line(block.question, 400))
            outcome = _OUTCOMES[block.outcome]
            line.append(f"\n  {outcome or one_line(block.answer, 400)}", style="dim" if outcome else "bold")
            return line


def _marked(sign: str, text: str, style: str) -> Text:
    line = Text()
    line.append(f"{sign} ", style=style)
    return line.append(text, style=style if "bold" in style else None)


def _title(text: str) -> str:
    """Return the first line of what a person said, without Markdown's marks of a heading."""
    first, _, rest = text.strip().partition("\n")
    return one_line(first.lstrip("# ") or first, 150) + (" …" if rest.strip() else "")


def _pathed(path: str) -> str:
    return f"[{one_line(path, 60)}] " if path else ""


class LiveArea:
    """What is shown while it lasts, from top to bottom: text being written, running tools, list, question, input.

    It never takes more lines than the terminal has: the input comes first, then the question, the list around its
    active item, and the end of the text gets what is left.
    """

    def __init__(self, view: View, dialogue: Dialogue, marks: dict[Mark, str], *, once: bool) -> None:
        self.view = view
        self.dialogue = dialogue
        self.marks = marks
        self.once = once
        self.typed = ""
        self.notice = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def lines_of(text: Text) -> Lines:
            lines = console.render_lines(text, options, pad=False) if text else []
            return [line for line in lines if line or text.plain.strip()]

        width, height = options.max_width, max(3, console.size.height - 1)
        footer = self._footer(lines_of, width, height)
        room = height - len(footer)
        question = _limited(lines_of(self._question()), room)
        room -= len(question)
        todos = [line for item in self._todos(width, room) for line in lines_of(item)[:1]]
        room -= len(todos)
        above = lines_of(self._above(width, room))[-room:] if room else []
        shown = [part for part in (above, todos, question, footer) if part]
        airy = sum(map(len, shown)) + len(shown) <= height
        for part in shown:
            if airy:
                yield Segment.line()
            for line in part:
                yield from line
                yield Segment.line()

    def _above(self, width: int, room: int) -> Text:
        text = Text(end="")
        if self.view.partial.strip():
            text.append(tail(self.view.partial.rstrip(), min(MAX_STREAMED_LINES, room), width))
        for name in list(self.view.tools.values())[:MAX_TOOLS]:
            text.append(f"{chr(10) if text else ''}{self.marks[Mark.TOOL]} {one_line(name, width - 4)}…", style="blue")
        return text

    def _todos(self, width: int, room: int) -> list[Text]:
        items = self.view.items
        if not items or room < 2:
            return []
        done = sum(item.status is TodoStatus.COMPLETED for item in items)
        header = Text(f"{done} of {len(items)} done", style="bold")
        if len(items) < room:
            return [header, *(self._item(item, width) for item in items)]
        shown = max(1, room - 2)
        active = next((n for n, item in enumerate(items) if item.status is TodoStatus.IN_PROGRESS), done)
        start = max(0, min(active - shown // 3, len(items) - shown))
        after = len(items) - start - shown
        more = Text(f"  … {start} before, {after} after", style="dim")
        return [header, *(self._item(item, width) for item in items[start : start + shown]), more][:room]

    def _item(self, item: TodoItem, width: int) -> Text:
        mark = _ITEM_MARKS[item.status]
        active = mark is Mark.ACTIVE
        text = one_line((item.activeForm if active else "") or item.content, max(8, width - 3))
        line = Text(f"{self.marks[mark]} ", style=_STYLES[mark], end="", no_wrap=True)
        return line.append(text, style=_STYLES[mark] if mark is not Mark.DONE else "dim")

    def _question(self) -> Text:
        asking = self.dialogue.asking(self.view)
        text = Text(end="")
        if asking is None:
            return text
        ask, question = asking
        _append_question(text, ask, question)
        waiting = self.dialogue.waiting(self.view)
        if waiting:
            text.append(f"\n{len(waiting)} more to answer after this one", style="dim")
            for other in waiting[:3]:
                text.append(f"\n  {one_line(other.questions[0].question, 70)}", style="dim")
        return text

    def _footer(self, lines_of: Callable[[Text], Lines], width: int, room: int) -> Lines:
        """The line being typed, then as much of the notice and of the hint as there is room for."""
        rich = self.marks is _UNICODE
        typed = Text(end="")
        typed.append("› " if rich else "> ", style="bold").append(tail(self.typed, 3, width - 3))
        typed.append("▏" if rich else "_", style="bold blink")
        line = lines_of(typed)[-room:]
        notice = lines_of(Text(one_line(self.notice, 400), style="yellow", end=""))[: room - len(line)]
        below = lines_of(Text(hint(self.view, self.dialogue, once=self.once), style="dim", end=""))
        return [*notice, *line, *below[: room - len(line) - len(notice)]]


def _limited(lines: Lines, room: int) -> Lines:
    return lines if len(lines) <= room else [*lines[: max(0, room - 1)], [Segment("…")]][:room]


def _append_question(text: Text, ask: Ask, question: Question) -> None:
    text.append("? ", style="bold magenta")
    if ask.path:
        text.append(_pathed(ask.path), style="dim")
    if question.header:
        text.append(one_line(question.header, 40) + ": ", style="magenta")
    text.append(clean(question.question).strip(), style="bold")
    if len(ask.questions) > 1:
        place = next(n for n, other in enumerate(ask.questions, 1) if other.id == question.id)
        text.append(f" ({place} of {len(ask.questions)})", style="dim")
    for number, option in enumerate(question.options, 1):
        text.append(f"\n {number:>2}  ", style="bold cyan").append(one_line(option.label, 300))
        if option.description:
            text.append(f" — {one_line(option.description, 300)}", style="dim")
