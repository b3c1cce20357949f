"""A client of the gateway for its scenarios: it keeps what it has seen over all its connections, and comes back.

It decides what a client may expect of one connection; what a scenario allows is the house's.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from actors.gateway.gateway import Gateway
from tests.sweeps.gateway_wire import CLOSE, PING, PONG, TEXT, Gone, Wire, frame, head


class Told(Exception):
    """A call was refused, or the session sends no more, with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Slice:
    """What was seen of one log without a break: every event after `first`."""

    session: str
    log_id: str
    first: int
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def last(self) -> int:
        """The seq of the last event."""
        return self.first + len(self.events)


class Allows(Protocol):
    """What a page asks of its scenario: it raises again what must not have happened."""

    def lost(self, page: "Page", gone: Gone) -> None: ...
    def refused(self, page: "Page", told: Told) -> None: ...


class Page:
    """A client that comes back after each loss and goes on where it was.

    Attributes:
        gateway: Where it connects.
        slices: What it has seen, by session the newest last.
        joined: The sessions that it is attached to right now.
        answers: It answers each question of its own runs.
    """

    def __init__(self, house: Allows, gateway: Gateway, *, client: str = "", batch: bool = False) -> None:
        self.gateway = gateway
        self.slices: list[Slice] = []
        self.joined: dict[str, Slice] = {}
        self.answers = True
        self.wire: Wire | None = None
        self._house = house
        self._hello = {"protocol": 1, "client": {"name": "page", "id": client}, "capabilities": {"batch": batch}}
        self._calls = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self._answered: set[str] = set()

    def vanish(self) -> None:
        """Lose the connection; what it is doing notices. At any moment."""
        if self.wire is not None:
            self.wire.hang_up()

    def close(self) -> None:
        """Let go of the connection without a word."""
        self.joined.clear()
        if self.wire is not None:
            self.wire.close()

    # ---- one connection

    async def connect(self) -> None:
        """Connect, upgrade and initialize, in one go."""
        self.close()
        self.wire = wire = Wire(self.gateway)
        self._replies.clear()
        await wire.send(head(self.gateway) + self.frame_of("initialize", **self._hello))
        status = await wire.read_head()
        if status != 101:
            raise Gone(status)
        await self._reply_to(self._calls)

    async def call(self, method: str, /, **params: Any) -> Any:
        """Call and return the result; the events before it are taken."""
        assert self.wire is not None
        await self.wire.send(self.frame_of(method, **params))
        result = await self._reply_to(self._calls)
        if method == "session/detach":
            self.joined.pop(params["session"], None)
        return result

    async def leave(self) -> int:
        """Say goodbye, and return the code with which the other end does."""
        assert self.wire is not None
        self.joined.clear()
        try:
            await self.wire.send(frame(CLOSE, b"\x03\xe8"))
            while True:
                await self.take()
        except Gone as gone:
            await self.wire.read_to_end()
            return gone.code
        finally:
            self.wire.close()

    async def take(self) -> None:
        """Take the next frame."""
        assert self.wire is not None
        opcode, payload = await self.wire.read_frame()
        if opcode == PING:
            await self.wire.send(frame(PONG, payload))
        elif opcode == CLOSE:
            self.joined.clear()
            raise Gone(int.from_bytes(payload[:2], "big"), payload[2:].decode())
        elif opcode == TEXT:
            messages = json.loads(payload)
            for message in messages if isinstance(messages, list) else [messages]:
                self._take(message)

    def frame_of(self, method: str, /, **params: Any) -> bytes:
        """Return the frame of a call."""
        self._calls += 1
        call = {"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params}
        return frame(TEXT, json.dumps(call).encode())

    async def _reply_to(self, number: int) -> Any:
        while number not in self._replies:
            await self.take()
        reply = self._replies.pop(number)
        if "error" in reply:
            raise Told(reply["error"].get("data", {}).get("code", str(reply["error"]["code"])))
        return reply["result"]

    def _take(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "event":
                event, part = params["event"], self.joined[params["session"]]
                if event.get("seq"):
                    assert event["seq"] == part.last + 1, f"event {event['seq']} follows {part.last}"
                    part.events.append(event)
            case "detached":
                part = self.joined.pop(params["session"])
                assert params["seq"] == part.last, f"detached after {params['seq']}, {part.last} was the last"
                raise Told(params["code"])
            case None:
                result = message.get("result")
                if isinstance(result, dict) and "mode" in result:
                    self._joined(result)  # before the events behind it are looked at
                self._replies[message["id"]] = message

    def _joined(self, result: dict[str, Any]) -> None:
        before = self.last_slice(result["session"])
        if result["mode"] == "tail":
            assert before is not None
            assert (before.log_id, before.last) == (result["log_id"], result["seq"]), "the tail is another one"
            self.joined[result["session"]] = before
        else:
            part = Slice(result["session"], result["log_id"], result["seq"])
            self.slices.append(part)
            self.joined[result["session"]] = part

    # ---- a session, over as many connections as it takes

    def last_slice(self, session: str) -> Slice | None:
        """What was seen last of a session."""
        return next((part for part in reversed(self.slices) if part.session == session), None)

    async def join(self, session: str = "s") -> Slice:
        """Be attached, from where it was the last time."""
        if self.wire is None or not self.wire.is_open:
            await self.connect()
        if session not in self.joined:
            await self.call("session/open", session=session)
            before = self.last_slice(session)
            known = {} if before is None else {"log_id": before.log_id, "cursor": before.last}
            await self.call("session/attach", session=session, **known)
        return self.joined[session]

    async def run(self, text: str, command: str, session: str = "s") -> str:
        """Prompt, come back as often as that takes, and return how the run has ended."""
        while True:
            try:
                await self.join(session)
                started = await self.call(
                    "session/prompt", session=session, text=text, command=command, when_busy="queue"
                )
                return await self.see_end(started["run"], session)
            except Gone as gone:
                self.close()
                self._house.lost(self, gone)
            except Told as told:
                self._house.refused(self, told)

    async def see_end(self, run: str, session: str = "s") -> str:
        """Take events up to the end of a run, and return its type. Answers what is asked on the way."""
        part = self.joined[session]
        looked = 0
        while True:
            for event in part.events[looked:]:
                if event.get("run") == run and event["type"] in ("run_completed", "run_failed", "run_cancelled"):
                    return str(event["type"])
            looked = len(part.events)
            settled = {event["tool_call_id"] for event in part.events if event["type"] == "ask_settled"}
            asked = {event["ask"]["tool_call_id"] for event in part.events if event["type"] == "ask_opened"}
            for ask in sorted(asked - settled) if self.answers else ():
                await self.call("session/answer", session=session, ask=ask, answer="yes", command=f"to {ask}")
            if len(part.events) == looked:
                await self.take()
