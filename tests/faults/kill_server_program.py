"""A server that is to be killed: a real agent over a real store behind a real gateway, and a process that forks such.

`serve` is one life, a cold process; `fork` imports everything once and forks a life for each line it reads. A life
says on stdout `opening PID NS` (of the monotonic clock), then `ready PID PORT`; the forking process says `ended PID
STATUS`. A life ends at SIGTERM in order, and with the process that started it. It knows nothing of clients and checks.
"""

import gc
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from actors import (
    Agent,
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    TodoWriteExtension,
    open_agent,
    open_gateway,
)
from actors.agent.ports import CommitSink, StoredLog, StoredSession
from actors.runtime import System
from actors.stores import SqliteStore
from protocol.asks import Question
from protocol.chat import ToolCall
from protocol.events import Event
from protocol.history import State
from protocol.limits import DEFAULT_LIMITS
from tests.faults.kill_script import make_model, make_tools
from tests.faults.stores import PlainStore

#: Small, so that snapshots, short logs in memory and passivation happen within a few records and moments.
LIMITS = msgspec.structs.replace(
    DEFAULT_LIMITS, snapshot_records=60, max_log_records=150, max_resumes=8, drain_deadline_s=0.3,
    close_deadline_s=0.2, close_grace_s=1.0, cancel_grace_s=1.0,
)  # fmt: skip
IDLE_S = 0.08


class Life(msgspec.Struct, frozen=True):
    """What one life is started with.

    Attributes:
        store: The file of the store.
        effects: The file where tools note what they do.
        port: Where to listen; 0 picks a free port.
        token: What clients show.
        seed: Of what is drawn in this life.
        hasty_s: Acknowledge records so many seconds before they are kept: a fault that must be found. 0 is none.
        careless: All tools are said to be safe to run again: another one.
        idle_s: After which time a session leaves memory.
    """

    store: str
    effects: str
    token: str
    port: int = 0
    seed: int = 0
    hasty_s: float = 0.0
    careless: bool = False
    idle_s: float = IDLE_S


class Guard(AgentExtension):
    """Puts a question before each call of the tool `guarded` that authorises nothing and answers no call."""

    async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
        if call.name == "guarded":
            context.open_ask(call.id, (Question("q1", "May it?"),), answers_call=False)


class HastyStore(PlainStore):
    """Says that records are kept before they are: what a test with kills must find. Needs `keep` in some nursery."""

    def __init__(self, inner: SqliteStore, late_s: float) -> None:
        self._inner = inner
        self._late_s = late_s
        self._held: list[tuple[str, Sequence[Event]]] = []

    async def open(self, system: System) -> None:
        await self._inner.open(system)

    def create(self, session_id: str, log_id: str) -> None:
        self._inner.create(session_id, log_id)

    async def load(self, session_id: str) -> StoredLog | None:
        self._pass_on()
        return await self._inner.load(session_id)

    async def read(self, session_id: str, *, after: int, limit: int) -> Sequence[Event]:
        return await self._inner.read(session_id, after=after, limit=limit)

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> Sequence[StoredSession]:
        return await self._inner.list_sessions(after=after, limit=limit)

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        self._held.append((session_id, tuple(events)))
        sink.commit(events[-1].seq)

    def save_snapshot(self, session_id: str, state: State) -> None:
        self._pass_on()
        self._inner.save_snapshot(session_id, state)

    async def aclose(self) -> None:
        self._pass_on()
        await self._inner.aclose()

    async def keep(self) -> None:
        """Pass on what is held, late, for ever."""
        while True:
            await trio.sleep(self._late_s)
            self._pass_on()

    def _pass_on(self) -> None:
        held, self._held = self._held, []
        for session_id, events in held:
            self._inner.append(session_id, events, _Deaf())


class _Deaf:
    def commit(self, head: int) -> None: ...

    def store_failed(self, error: Exception) -> None: ...


@asynccontextmanager
async def _opened(life: Life) -> AsyncGenerator[Agent]:
    inner = SqliteStore(life.store)
    hasty = HastyStore(inner, life.hasty_s) if life.hasty_s else None
    async with trio.open_nursery() as nursery:
        if hasty is not None:
            nursery.start_soon(hasty.keep)
        async with open_agent(
            make_model(), store=hasty or inner, tools=make_tools(life.effects, careless=life.careless),
            extensions=[TodoWriteExtension(), AskUserExtension(), Guard()],
            resume="auto", idle_s=life.idle_s, limits=LIMITS,
        ) as agent:  # fmt: skip
            yield agent
        nursery.cancel_scope.cancel(reason="the agent is closed")


async def serve(life: Life) -> None:
    """Be one life: until SIGTERM, or until whoever started it is gone."""
    say("opening", time.monotonic_ns())
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with _opened(life) as agent:
            async with open_gateway(agent, port=life.port, token=life.token, limits=LIMITS) as gateway:
                say("ready", gateway.port)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_end_alone)
                    await anext(signals)
                    await gateway.drain(1012)
                    nursery.cancel_scope.cancel(reason="it is over")


async def _end_alone() -> None:
    """End with the process that started this one: nothing but its end comes on stdin while a life lasts."""
    await trio.lowlevel.wait_readable(0)
    os._exit(3)


def say(word: str, number: int) -> None:
    """Say a line about this process: in one write, so that it is whole or not there."""
    os.write(1, f"{word} {os.getpid()} {number}\n".encode())


def live(life: Life) -> None:
    random.seed(life.seed)
    trio.run(serve, life)


def fork_lives() -> None:
    """Fork a life for each line, one after the other. Runs no event loop and no thread, so a child begins clean."""
    gc.freeze()
    while line := _read_line():
        life = msgspec.json.decode(line, type=Life)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                live(life)
                status = 0
            except BaseException:  # noqa: ASYNC103 - this process ends here, and nothing is above it
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        os.write(1, f"ended {child} {os.waitstatus_to_exitcode(status)}\n".encode())


def _read_line() -> bytes:
    """Read a line without taking what comes after it: that is the child's."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


def arguments(how: str, life: Life | None = None) -> list[str]:
    """Return the command that runs this program."""
    given: list[Any] = [] if life is None else [json.dumps(msgspec.to_builtins(life))]
    return [sys.executable, "-m", "tests.faults.kill_server_program", how, *given]


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        fork_lives()
    else:
        live(msgspec.json.decode(sys.argv[2], type=Life))
