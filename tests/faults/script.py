"""What the model says in the sweep, its tool, and the stores it is played with."""

from collections.abc import Callable, Sequence
from typing import Any

import trio

from actors import AskUserExtension, ModelRequest, TodoWriteExtension, UserMessage, tool
from actors.agent.memory import MemoryStore
from actors.models.scripted import Step, call, say
from tests.faults.stores import FailingStore, LyingStore, SlowStore

STORES = ("memory", "slow", "slow clock", "failing", "failing later")


def turn(request: ModelRequest) -> Step | Sequence[Step]:
    last = next(m for m in reversed(request.messages) if isinstance(m, UserMessage))
    if last.content == "again":
        return say("fine")
    match request.turn:
        case 1:
            items = [("read", "in_progress"), ("write", "pending"), ("test", "pending")]
            plan = call("todo_write", {"todos": [{"content": c, "status": s} for c, s in items]}, id="t1")
            return [say("hm "), plan, call("fetch", {"n": 1}, id="f1"), call("fetch", {"n": 2}, id="f2")]
        case 2:
            return [call("ask_user", {"question": "Which?"}, id="q1"), call("ask_user", {"question": "Why?"}, id="q2")]
        case _:
            return say("done")


@tool
async def fetch(n: int) -> str:
    """Take a while.

    Args:
        n: Seconds.
    """
    await trio.sleep(n)
    return f"fetched {n}"


# Tools and extensions hold configuration only, so every case may use the same.
TOOLS = (fetch,)
EXTENSIONS = (TodoWriteExtension(), AskUserExtension())


def make_store(kind: str, fails_at: int, nursery: trio.Nursery) -> Any:
    match kind:
        case "memory":
            return MemoryStore()
        case "slow" | "slow clock":
            store = SlowStore(checkpoints=2, delay_s=0.5 if kind == "slow clock" else 0.0)
            nursery.start_soon(store.keep)
            return store
        case "failing":
            return FailingStore(fails_at)
        case "failing later":

            async def report(later: Callable[[], None]) -> None:
                await trio.lowlevel.checkpoint()
                later()

            return FailingStore(fails_at, later=lambda later: nursery.start_soon(report, later))
        case _:
            return LyingStore(fails_at)
