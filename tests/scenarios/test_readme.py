"""What the README shows works as it is written."""

import re
from pathlib import Path
from typing import Any

import pytest
import trio

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```\w+\n(.*?)```", README, re.DOTALL)
    assert found is not None, f"README.md has no block marked {mark!r}"
    return found.group(1)


async def test_the_two_commands_do_all_the_set_up() -> None:
    set_up = "python3 -m venv .venv && .venv/bin/pip install -e "
    assert block("run") == f"{set_up}. && .venv/bin/actors run docs/examples/release.md\n"
    assert block("test") == f"{set_up}'.[dev]' && .venv/bin/python -m pytest\n"


async def test_the_embedding_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block("embed"), "README.md", "exec"), namespace)

    with trio.fail_after(30):
        await namespace["main"]()

    out = capsys.readouterr().out
    assert "connect to ws://127.0.0.1:" in out
    assert "used count_words\n" in out
    assert "used ask_user\n" in out
    assert "**Markdown**" in out


async def test_a_websocket_client_answers_the_embedded_agent(capsys: pytest.CaptureFixture[str]) -> None:
    """The same agent, its question answered from outside over a real socket."""
    from actors import AskUserExtension, ChecklistModel, TodoWriteExtension, open_agent, open_gateway
    from actors.client.connection import connect

    namespace: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block("embed"), "README.md", "exec"), namespace)
    extensions = [TodoWriteExtension(), AskUserExtension(), namespace["Audit"]()]
    with trio.fail_after(30):
        async with (
            open_agent(ChecklistModel(), tools=[namespace["count_words"]], extensions=extensions) as agent,
            open_gateway(agent, host="127.0.0.1", port=0) as gateway,
            connect(gateway.url, gateway.token) as client,
            agent.stream(namespace["CHECKLIST"], session_id="s-42") as events,
        ):
            await client.attach("s-42")
            async for event in events:
                if event.name == "ask_user":
                    ask = event.payload["tool_call_id"]
                    await client.call("session/answer", session="s-42", ask=ask, answer="Plain text")
            assert "**Plain text**" in (await events.final()).content
