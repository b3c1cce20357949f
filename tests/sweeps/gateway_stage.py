"""What the scenarios of the gateway share: a served agent, what can happen to it, and what must hold afterwards.

Each strike at a connection may cost one connection and no more; a strike at a run or a session costs none.
"""

import json
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import trio

from actors import Agent, AskUserExtension, RunCancelled, RunFailed, ScriptedModel, Tool, open_agent, open_gateway, tool
from actors.agent.memory import MemoryLog, MemoryStore
from actors.gateway.gateway import Connection, Drain, Gateway
from actors.models.scripted import call, pause, say
from actors.runtime import open_system
from actors.testing.sweep import Stage
from protocol import jsonrpc
from protocol.chat import ModelRequest, ToolMessage
from protocol.errors import Code, RuleViolation
from protocol.events import Event
from protocol.limits import Limits
from tests.faults.invariants import check_agent, check_log
from tests.sweeps.gateway_page import Page, Told
from tests.sweeps.gateway_wire import Gone, Wire

TOKEN = "swept-and-swept-again-and-again"
#: What may cost a connection: a strike at one.
AT_LINKS = ("vanish", "link", "error", "drain")
#: What a call is answered with that met an error of the server.
INTERNAL = str(jsonrpc.INTERNAL_ERROR)
#: What calls are answered with when their session is gone.
OVER = {"session.closed", "session.unknown", "session.crashed", "link.not_attached"}


class KeptLogs(MemoryStore):
    """Forgets a session as it should, and keeps every log by its id for the checks."""

    __slots__ = ("delay_s", "logs")

    def __init__(self) -> None:
        super().__init__()
        self.delay_s = 0.0
        self.logs: dict[str, list[Event]] = {}

    def create(self, session_id: str, log_id: str) -> None:
        super().create(session_id, log_id)
        self.logs[log_id] = self._logs[session_id]

    async def load(self, session_id: str) -> MemoryLog | None:
        if self.delay_s:
            await trio.sleep(self.delay_s)
        return await super().load(session_id)


@tool
async def wait_a_while() -> str:
    """Take ten seconds."""
    await trio.sleep(10)
    return "waited"


def turn(request: ModelRequest) -> Any:
    """Ask where the prompt says so, wait where it says so, and be done when there is a result."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return say("fine")
    match last.content:
        case "ask":
            return call("ask_user", {"question": "Go on?", "options": ["yes", "no"]})
        case "wait":
            return call("wait_a_while")
        case "much":
            return [step for word in "abc" for step in (say(word * 2_000), pause(0.01))]
        case _:
            return say("fine")


class House:
    """An agent and its gateway, with the pages that look at it.

    Attributes:
        pages: All there are.
        wires: Connections that are no page's.
        losses: How many connections were lost that their page did not close.
        losses_planned: How many of those the scenario itself brings about.
        planned: Codes of refusals that it brings about.
    """

    def __init__(self, stage: Stage, store: KeptLogs) -> None:
        self.stage = stage
        self.store = store
        self.pages: list[Page] = []
        self.wires: list[Wire] = []
        self.losses = self.losses_planned = 0
        self.planned: set[str] = set()
        self.agent: Agent
        self.gateway: Gateway

    # ---- what can happen; synchronous

    def offer(self, page: Page) -> None:
        """From now on, everything can happen to what there is, and this page can vanish."""
        self.stage.fault("request", self.cancel_run)
        self.stage.fault("session", self.shut_session)
        self.stage.fault("link", self.stop_link)
        self.stage.fault("vanish", page.vanish)

    def withdraw(self) -> None:
        """From now on, nothing can."""
        for name in ("request", "session", "link", "vanish"):
            self.stage.withdraw(name)

    def cancel_run(self) -> None:
        """Cancel what runs."""
        session = self.agent.find("s")
        if session is not None:
            session.cancel("", reason="swept")

    def shut_session(self) -> None:
        """End the session's record."""
        session = self.agent.find("s")
        if session is not None:
            session.shut(RuleViolation(Code.SESSION_CLOSED, "swept"))

    def stop_link(self) -> None:
        """Stop the oldest connection's actor."""
        for link in self.oldest():
            if link.ref is not None:
                link.ref.stop("swept")

    def hang_up(self) -> None:
        """The first of the connections that are no page's is gone."""
        for wire in self.wires[:1]:
            wire.hang_up()

    def oldest(self) -> list[Connection]:
        """The oldest connection, if there is any."""
        return sorted(self.gateway._connections, key=lambda one: int(one.name.split()[1]))[:1]

    def stuff_up(self, seconds: float) -> None:
        """The oldest connection takes the next piece only in so many seconds, as if nobody read at the other end."""

        def stuff(stream: trio.SocketStream) -> None:
            send_all = stream.send_all

            async def take_late(data: bytes) -> None:
                await trio.sleep(seconds)
                stream.send_all = send_all  # type: ignore[method-assign]
                await send_all(data)

            stream.send_all = take_late  # type: ignore[assignment, method-assign]

        for connection in self.oldest():
            stuff(connection.stream)

    def drain_by_message(self) -> None:
        """Ask the gateway's actor to close; nobody waits for its reply."""
        for connection in self.gateway._connections:
            assert connection.ref is not None
            registry = connection.ref.for_runtime().system.registry
            gateway = registry.lookup(f"gateway on port {self.gateway.port}")
            if gateway is not None:
                gateway.tell(Drain())
            return

    # ---- what is allowed

    def lost(self, page: Page, gone: Gone) -> None:
        """Raise again what did not come of a strike at a connection."""
        self.losses += 1
        strikes = sum(name in AT_LINKS for name in self.stage.struck)
        if self.losses > self.losses_planned + strikes:
            raise gone

    def refused(self, page: Page, told: Told) -> None:
        """Raise again what did not come of a strike at the run or the session."""
        struck = self.stage.struck
        if told.code in self.planned:
            return
        if "session" in struck and told.code in OVER:
            return
        if {"request", "session"} & {*struck} and told.code == "ask.settled":
            return
        if "error" in struck and told.code in (INTERNAL, "session.closed", "store.failed"):
            return  # it struck what the link was doing for a call, perhaps in its store
        raise told

    def ended(self, how: str, wanted: str = "run_completed") -> None:
        """Check how a run has ended."""
        struck = self.stage.struck
        cut_off = how == "run_failed" and "session" in struck  # so says the log, when it is opened again
        assert how == wanted or cut_off or (how == "run_cancelled" and "request" in struck), how

    @contextmanager
    def attempt(self, page: Page, codes: list[int] | None = None) -> Generator[None]:
        """What may fail for one of the reasons above. It is not tried again. The code of a Close goes to `codes`."""
        try:
            yield
        except Gone as gone:
            page.close()
            if codes is not None:
                codes.append(gone.code)
            self.lost(page, gone)
        except Told as told:
            self.refused(page, told)

    async def run_beside(self, text: str) -> None:
        """Prompt from within the process: no client can keep it from its end."""
        try:
            assert (await self.agent.run(text, session_id="s")).content == "fine"
        except RunCancelled:
            assert "request" in self.stage.struck
        except (RunFailed, RuleViolation) as failed:
            if "session" not in self.stage.struck or failed.code not in OVER:
                raise

    def page(self, **options: Any) -> Page:
        """Another one."""
        page = Page(self, self.gateway, **options)
        self.pages.append(page)
        return page

    async def goes_on(self) -> None:
        """Check that the session takes the next prompt, whatever was done to it."""
        self.withdraw()
        for _ in range(3):
            try:
                assert (await self.agent.run("again", session_id="s")).content == "fine"
                return
            except RunCancelled:  # a cancel of the run before was still on its way
                continue
            except RuleViolation as refused:
                if "session" not in self.stage.struck or refused.code not in OVER:
                    raise
        raise AssertionError("the session does not take the next prompt")

    # ---- what must hold in the end

    def check(self) -> None:
        """Check what is left of it."""
        assert not self.gateway.connections, "connections are left"
        assert not self.gateway._clients, "clients are left"
        check_agent(self.agent)
        shut = "session" in self.stage.struck
        for log in self.store.logs.values():
            check_log(log, over=not shut)
        for page in self.pages:
            for part in page.slices:
                log = self.store.logs[part.log_id]
                wanted = [_sent(part.session, part.log_id, event) for event in log[part.first : part.last]]
                assert part.events == wanted, f"a client has seen another log: {part.events} for {wanted}"


def _sent(session: str, log_id: str, event: Event) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(jsonrpc.event_frame(session, log_id, event))
    body: dict[str, Any] = sent["params"]["event"]
    return body


def made(limits: Limits | None = None, **changes: Any) -> Limits:
    """Limits with changes."""
    return msgspec.structs.replace(limits or Limits(), **changes)


@asynccontextmanager
async def house(
    stage: Stage, *, limits: Limits | None = None, tools: Sequence[Tool] = (wait_a_while,), **options: Any
) -> AsyncGenerator[House]:
    """Open an agent with a gateway, and check in the end that nothing is left of what was on it.

    Args:
        stage: Where the scenario plays.
        limits: Of the agent and the gateway.
        tools: Of the agent.
        options: For `open_agent`.
    """
    here = House(stage, KeptLogs())
    used = limits or Limits()
    options.setdefault("store", here.store)
    options.setdefault("resume", "never")  # what goes on after an interruption has scenarios of its own
    model = ScriptedModel([turn], repeat=True, record=False)
    async with open_system() as system:
        async with open_agent(
            model, tools=tools, extensions=[AskUserExtension()], limits=used, system=system, **options
        ) as here.agent:  # fmt: skip
            async with open_gateway(here.agent, token=TOKEN, limits=used) as here.gateway:
                stage.afterwards(here.check)
                try:
                    yield here
                finally:
                    for page in here.pages:
                        page.close()
                    for wire in here.wires:
                        wire.close()
