"""The specification says what the types say."""

from pathlib import Path

import pytest
from msgspec.structs import fields

from protocol import commands as cmd
from protocol.tables import code_table, event_table, render

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_tables_of_the_page_are_those_of_the_types() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == render(page), "write protocol.tables.render(page) back to docs/protocol.md"


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the page has no place for its table of events: "):
        render("nothing")


def test_rows_name_type_keeping_and_fields() -> None:
    assert "| `ask_opened` | log | `ask` |" in event_table()
    assert "| `text_delta` | no | `message`, `offset`, `text` |" in event_table()
    assert "| `content_started` | no | `message_id` |" in event_table()
    assert "| `steering_completed` | log | none |" in event_table()
    assert "| `ask.unknown` | No ask of that session has this id. |" in code_table()


@pytest.mark.parametrize("method", cmd.METHODS, ids=str)
def test_the_page_lists_every_method_with_its_parameters(method: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{method}` |")]
    listed = row.split(" | ")[1]
    params = [f"`{field.encode_name}{'' if field.required else '?'}`" for field in fields(cmd.METHODS[method])]
    assert listed == ", ".join(params)
