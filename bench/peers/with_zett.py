"""zett-agent: an agent runtime on asyncio with the same two tools. A session is a task that awaits `Agent.run`.

Its sessions have no life of their own, so the end of the system is the cancel of all. It runs with the extensions that
have counterparts in the load and none besides.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from statistics import median

from zett_agent.agent import Agent, AgentRunConfig
from zett_agent.extensions.ask_user import AskUserExtension
from zett_agent.extensions.todo import TodoWriteExtension
from zett_agent.messages import AssistantMessage, ToolCall
from zett_agent.model import ModelEvent, ModelRequest, ModelResponse, RetryOptions

from bench.peers.sizes import BURST, Growth, order

_TODOS = [
    {"content": "Choose a format", "status": "in_progress"},
    {"content": "Write the outline", "status": "pending"},
    {"content": "Write the text", "status": "pending"},
]
_QUESTION = {"question": "Which format do you want?", "options": ["Markdown", "PDF", "HTML"]}
_PROMPT = "Help me choose a format"
_CANCELS = 200


class _Model:
    """Writes a todo list, then asks.

    Attributes:
        asked: How many questions there were.
        retry: Part of what a model is; nothing fails here.
    """

    retry = RetryOptions(max_retries=0)

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream the first turn, or the second."""
        if any(isinstance(message, AssistantMessage) for message in request.messages):
            self.asked += 1
            call = ToolCall("ask-1", "ask_user", dict(_QUESTION))
        else:
            call = ToolCall("todo-1", "todo_write", {"todos": [dict(item) for item in _TODOS]})
        yield ModelEvent.completed(ModelResponse(AssistantMessage(tool_calls=(call,)), finish_reason="tool_calls"))


class _Sessions:
    """An agent and the tasks that run in its sessions."""

    def __init__(self) -> None:
        self.model = _Model()
        self.todos = TodoWriteExtension()
        self.agent = Agent(self.model, extensions=[self.todos, AskUserExtension()])
        self.tasks: list[asyncio.Task[AssistantMessage]] = []

    def start(self, number: int) -> asyncio.Task[AssistantMessage]:
        return asyncio.create_task(self.agent.run(_PROMPT, config=AgentRunConfig(session_id=f"s-{number}")))

    async def put(self, n: int) -> None:
        """Start a run in `n` more sessions and return when all of them wait for an answer."""
        first, wanted = len(self.tasks), self.model.asked + n
        for number in range(first, first + n):
            self.tasks.append(self.start(number))
            if number % BURST == BURST - 1:
                await asyncio.sleep(0)
        await self.wait_asked(wanted)
        assert self.todos.todos(f"s-{first}") is not None

    async def wait_asked(self, wanted: int) -> None:
        """Wait until there were so many questions, and the last of them is pending."""
        while self.model.asked < wanted:
            assert not any(task.done() for task in self.tasks), "a run ended without a question"
            await asyncio.sleep(0)
        for _ in range(30):
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Cancel every run and wait for all."""
        for number, task in enumerate(self.tasks, 1):
            task.cancel()
            if not number % BURST:
                await asyncio.sleep(0)
        await asyncio.wait(self.tasks)


def setup(n: int) -> float:
    """Return the microseconds for each session until all of them wait for an answer."""

    async def run() -> float:
        sessions = _Sessions()
        await sessions.agent.initialize()
        gc.collect()
        before = time.perf_counter()
        await sessions.put(n)
        took = time.perf_counter() - before
        await sessions.end()
        return took / n * 1e6

    return asyncio.run(run())


def cancel_all(n: int) -> float:
    """Return the microseconds for each session until the runs of all have ended, cancelled in slices."""

    async def run() -> float:
        sessions = _Sessions()
        await sessions.agent.initialize()
        await sessions.put(n)
        gc.collect()
        before = time.perf_counter()
        await sessions.end()
        return (time.perf_counter() - before) / n * 1e6

    return asyncio.run(run())


def cancel_one(n: int) -> float:
    """Return the p50, in microseconds, until the run of one of `n` sessions has ended."""

    async def run() -> float:
        latencies: list[float] = []
        sessions = _Sessions()
        await sessions.agent.initialize()
        await sessions.put(n)
        gc.collect()
        for number in order(n, _CANCELS):
            task = sessions.tasks[number]
            before = time.perf_counter()
            task.cancel()
            await asyncio.wait([task])
            latencies.append(time.perf_counter() - before)
            wanted = sessions.model.asked + 1
            sessions.tasks[number] = sessions.start(number)
            await sessions.wait_asked(wanted)
        await sessions.end()
        return median(latencies) * 1e6

    return asyncio.run(run())


def memory(n: int) -> float:
    """Return the bytes that each of `n` sessions adds to the process."""

    async def run() -> float:
        growth = Growth(n)
        sessions = _Sessions()
        await sessions.agent.initialize()
        await sessions.put(growth.before)
        growth.start()
        await sessions.put(n)
        grown = growth.stop()
        await sessions.end()
        return grown

    return asyncio.run(run())


LOADS = {
    "cancel_setup": setup,
    "cancel_all": cancel_all,
    "cancel_one": cancel_one,
    "cancel_end": cancel_all,
    "cancel_memory": memory,
}
