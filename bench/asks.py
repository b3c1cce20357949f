"""`ask/*`: N sessions, each with one run that waits for the answer to one `ask_user` question.

`ask/roundtrip` is from `emit_external_event` to TOOL_COMPLETED in the loop of whoever consumes that run. Every session
has its consumer, and starts its next run, with the next question, before another one is answered: N stay pending.
`ask/memory` has no consumers; the sessions are prompted and left alone.
"""

import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from statistics import median

import trio
import trio.testing

from actors import (
    Agent,
    AgentEventType,
    AgentRunConfig,
    AskUserExtension,
    ExternalEvent,
    ScriptedModel,
    TodoWriteExtension,
    open_agent,
)
from actors.models.scripted import Turn, call, say
from bench import bare
from bench.harness import Goal, Peer, Row
from bench.memory import bytes_per_session

SCRIPT: Sequence[Turn] = [
    call("ask_user", {"question": "Which format do you want?", "options": ["Markdown", "PDF", "HTML"]}),
    say("Markdown it is."),
]
PROMPT = "Help me choose a format"


def roundtrip(*, quick: bool) -> list[Row]:
    """From an answer that is handed in to the tool result that the consumer sees."""
    samples = 100 if quick else 2_000
    rows: list[Row] = []
    for pending in (1, 100 if quick else 10_000):
        order = answer_order(pending, samples)
        rows.append(
            Row(
                bench="ask/roundtrip",
                case=f"{pending} pending",
                n=pending,
                unit="us (p50)",
                samples=len(order),
                repeats=3,
                measure=partial(roundtrip_us, pending, order),
                against="bare trio: an event is set, its waiter sends into a memory channel, the reader has it",
                refer=partial(bare.answer_us, order, pending),
                goal=Goal(value=40, at_most=True),
                peer=Peer("asyncio peer", 143),
                note="answers come through emit_external_event, in the loop's own thread",
            )
        )
    return rows


def memory(*, quick: bool) -> list[Row]:
    """What a session with its run and its open question holds in memory."""
    n = 1_000 if quick else 10_000
    return [
        Row(
            bench="ask/memory",
            case=f"{n} pending",
            n=n,
            unit="kB per ask",
            samples=n,
            repeats=3,
            measure=lambda: bytes_per_session("ask", n) / 1_000,
            against="bare trio: two parked tasks, a nursery and a memory channel per session",
            refer=lambda: bytes_per_session("bare", n) / 1_000,
            goal=Goal(value=12, at_most=True, scales=False),
            peer=Peer("asyncio peer", 43),
            note="growth of a new process; counts session and run, not a consumer; 1 kB is 1,000 bytes",
        )
    ]


def open_asking_agent() -> AbstractAsyncContextManager[Agent]:
    """Open an agent whose every run asks first, and is over once that is answered."""
    return open_agent(ScriptedModel(SCRIPT, repeat=True), extensions=[TodoWriteExtension(), AskUserExtension()])


_session_numbers = count()


async def put_asks(agent: Agent, n: int) -> None:
    """Open `n` more sessions, start a run in each and return when all of them wait for an answer."""
    for number in range(n):
        await agent.session(f"s-{next(_session_numbers)}").prompt(PROMPT)
        if number % 64 == 63:
            await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()


def answer_order(pending: int, samples: int) -> list[int]:
    """Return which sessions are answered: each at most once where there are enough, scattered, always the same."""
    if pending >= samples:
        return random.Random(0).sample(range(pending), samples)
    return [number % pending for number in range(samples)]


class _Probe:
    """Between whoever answers and the consumers: when a result was seen, and when all questions are open again."""

    def __init__(self, pending: int) -> None:
        self.tool_call_ids = [""] * pending
        self.missing = pending
        self.all_open = trio.Event()
        self.seen_at = 0.0
        self.stopping = False

    def opened(self, place: int, tool_call_id: str) -> None:
        self.tool_call_ids[place] = tool_call_id
        self.missing -= 1
        if not self.missing:
            self.all_open.set()

    def answered(self) -> None:
        self.missing += 1
        self.all_open = trio.Event()


def roundtrip_us(pending: int, order: Sequence[int]) -> float:
    """Return the p50, in microseconds, over answers to the sessions that `order` names."""

    async def run() -> float:
        latencies: list[float] = []
        async with open_asking_agent() as agent, _consumers(agent, pending) as probe:
            for place in order:
                probe.answered()
                session_id = f"s-{place}"
                payload = {"tool_call_id": probe.tool_call_ids[place], "answer": "Markdown"}
                before = time.perf_counter()
                taken = agent.emit_external_event(
                    ExternalEvent("ask_user_response", payload), config=AgentRunConfig(session_id=session_id)
                )
                assert taken, f"nobody took the answer for {session_id}"
                await probe.all_open.wait()
                latencies.append(probe.seen_at - before)
        return median(latencies) * 1e6

    return trio.run(run)


@asynccontextmanager
async def _consumers(agent: Agent, pending: int) -> AsyncGenerator[_Probe, None]:
    probe = _Probe(pending)
    async with trio.open_nursery() as nursery:
        for place in range(pending):
            nursery.start_soon(_consume, agent, place, probe)
        await probe.all_open.wait()
        yield probe
        probe.stopping = True
        for place in range(pending):
            await agent.session(f"s-{place}").cancel("it is measured")


async def _consume(agent: Agent, place: int, probe: _Probe) -> None:
    while not probe.stopping:
        async with agent.stream(PROMPT, session_id=f"s-{place}") as events:
            async for event in events:
                if event.type is AgentEventType.TOOL_COMPLETED:
                    probe.seen_at = time.perf_counter()
                elif event.type is AgentEventType.CUSTOM and event.name == "ask_user":
                    probe.opened(place, event.payload["tool_call_id"])
