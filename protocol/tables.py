"""The tables of `docs/protocol.md`, made from the types, so that the page cannot say what the code does not.

Pure text; `render` fills them into the page between their markers.
"""

from collections.abc import Iterable

from msgspec.structs import fields

from protocol import events as ev
from protocol.errors import MEANINGS

_ENVELOPE = frozenset(field.name for field in fields(ev.Ephemeral))


def code_table() -> str:
    """Every code that a refusal can have, and what it means."""
    return _table(("code", "meaning"), ((f"`{code}`", meaning) for code, meaning in MEANINGS.items()))


def event_table() -> str:
    """Every event with its own fields, durable ones first."""
    kinds: tuple[type[ev.Event], ...] = (*ev.DurableEvent.__args__, *ev.EphemeralEvent.__args__)
    return _table(("type", "kept", "fields"), (_event_row(kind) for kind in kinds))


def _event_row(kind: type[ev.Event]) -> tuple[str, ...]:
    own = [field for field in fields(kind) if field.name not in _ENVELOPE]
    named = ", ".join(f"`{field.encode_name}{'' if field.required else '?'}`" for field in own)
    return f"`{kind.__struct_config__.tag}`", "log" if kind.durable else "no", named or "none"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def render(page: str) -> str:
    """Return the page with its tables as they are now.

    Raises:
        ValueError: A marker is missing.
    """
    for name, table in (("events", event_table()), ("codes", code_table())):
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, found_begin, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not (found_begin and found_end):
            raise ValueError(f"the page has no place for its table of {name}: <!-- {name} --> ... <!-- /{name} -->")
        page = f"{before}{begin}{table}\n{end}{after}"
    return page
