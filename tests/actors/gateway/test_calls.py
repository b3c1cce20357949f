"""What each call does with a session, and what a link may rely on."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from actors.gateway.calls import let_go, perform
from actors.gateway.watch import EventEncoder, Watch
from protocol import commands as cmd
from protocol import events as ev
from protocol import link as rules
from protocol.errors import Code, RuleViolation


class Caller:
    def __init__(self) -> None:
        self.state = rules.Link()
        self.watches: dict[str, Watch] = {}
        self.joining: Watch | None = None
        self.encoder = EventEncoder()
        self.ended = False
        self.frames: list[int] = []
        self.identified: list[str] = []
        self.tasks: list[Callable[[], Awaitable[None]]] = []

    def identify(self, client: str) -> None:
        self.identified.append(client)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        self.tasks.append(task)

    def queue_event(self, watch: Watch, frame: bytes, seq: int) -> bool:
        self.frames.append(seq)
        return True

    def watch_closed(self, watch: Watch, code: Code, seq: int) -> None:
        raise AssertionError("nothing here closes")


@pytest.fixture
def caller() -> Caller:
    caller = Caller()
    rules.initialize(caller.state, cmd.Initialize(protocol=1), rules.ServerInfo("test", "0"))
    return caller


async def do(agent: Any, caller: Caller, params: cmd.Params) -> list[Any]:
    replies: list[Any] = []
    await perform(agent, caller, params, replies.append)
    return replies


async def test_initialize_says_who_the_client_is(fake_agent: Any) -> None:
    caller = Caller()
    (result,) = await do(
        fake_agent(), caller, cmd.Initialize(protocol=1, client=cmd.ClientInfo("editor", "1", "editor-1"))
    )
    assert result.protocol == 1
    assert caller.identified == ["editor-1"]


async def test_a_session_is_opened_once_and_found_again(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent()
    opened = [await do(agent, caller, cmd.Open(session="s")) for _ in range(2)]
    assert opened == [
        [{"session": "s", "log_id": "log of s", "seq": 1, "created": created}] for created in (True, False)
    ]


async def test_an_open_that_is_repeated_finds_the_session_it_made(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent()
    caller.state.client = cmd.ClientInfo(id="editor-1")
    first, second, third = [
        (await do(agent, caller, cmd.Open(command=command)))[0] for command in ("one", "one", "two")
    ]
    assert first["session"] == second["session"] != third["session"]
    caller.state.client = cmd.ClientInfo(id="editor-2")
    assert (await do(agent, caller, cmd.Open(command="one")))[0]["session"] != first["session"]
    caller.state.client = cmd.ClientInfo()
    unnamed = [(await do(agent, caller, cmd.Open(command="one")))[0]["session"] for _ in range(2)]
    assert len(set(unnamed)) == 2


@pytest.mark.parametrize(
    "params",
    [cmd.Attach(session="s"), cmd.Prompt(session="s", text="x"), cmd.GetState(session="s"), cmd.Close(session="s")],
)
async def test_an_unknown_session_is_refused(fake_agent: Any, caller: Caller, params: cmd.Params) -> None:
    with pytest.raises(RuleViolation, match=r"^session\.unknown: no session has this id; `session/open` makes"):
        await do(fake_agent(), caller, params)
    assert caller.state.cursors == {}


async def test_lists_are_paged(fake_agent: Any, caller: Caller) -> None:
    assert await do(fake_agent("a", "b", "c"), caller, cmd.List(after="a", limit=1)) == [
        {"sessions": ["b"], "more": True}
    ]


async def test_commands_go_to_the_session_as_they_are(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s")
    params = cmd.Prompt(session="s", text="x", command="c1")
    assert await do(agent, caller, params) == [{"seq": 1}]
    assert [command for command, _ in agent.sessions["s"].submitted] == [params]


async def test_attach_counts_from_the_moment_it_is_asked_for(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s")
    agent.sessions["s"].holding = True
    assert await do(agent, caller, cmd.Attach(session="s", cursor=4)) == []
    await do(agent, caller, cmd.Answer(session="s", ask="a"))
    assert len(agent.sessions["s"].submitted) == 2


async def test_what_happens_in_the_step_of_the_attach_is_not_lost_d04_d05(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s")
    session = agent.sessions["s"]
    seen: list[Any] = []

    def reply(result: Any) -> None:
        seen.append(("attached", result.seq))

    await perform(agent, caller, cmd.Attach(session="s"), reply)
    session.emit(ev.Custom("now", seq=2))  # no await in between
    assert seen == [("attached", 1)]
    assert caller.frames == [2]
    assert caller.watches["s"].seq == 2
    assert caller.joining is caller.watches["s"]


async def test_attaching_again_replaces_the_older_watch(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s")
    for _ in range(3):
        await do(agent, caller, cmd.Attach(session="s"))
    agent.sessions["s"].emit(ev.Custom("once", seq=2))
    assert caller.frames == [2]
    assert agent.sessions["s"].readers == [caller.watches["s"]]


async def test_an_attach_that_is_refused_leaves_things_as_they_were(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s", "t")
    await do(agent, caller, cmd.Attach(session="t"))
    for session in agent.sessions.values():
        session.result = RuleViolation(Code.SESSION_CLOSED)
    assert [await do(agent, caller, cmd.Attach(session=name)) for name in "st"] == [
        [agent.sessions["s"].result],
        [agent.sessions["t"].result],
    ]
    assert list(caller.state.cursors) == ["t"]
    agent.sessions["t"].emit(ev.Custom("still", seq=2))
    assert caller.frames == [2]


async def test_an_attach_that_is_cancelled_while_the_session_is_busy_leaves_nothing(
    fake_agent: Any, caller: Caller
) -> None:
    agent = fake_agent("s")
    with trio.CancelScope() as scope:
        scope.cancel()
        await do(agent, caller, cmd.Attach(session="s"))
    assert caller.state.cursors == {}


@pytest.mark.parametrize("how", ["the link ends", "it detaches"])
async def test_who_left_before_it_was_attached_is_not_attached(fake_agent: Any, caller: Caller, how: str) -> None:
    agent = fake_agent("s")
    session = agent.sessions["s"]
    readers: list[Any] = []

    async def submit(command: Any, reply: Any, *, reader: Any = None) -> None:
        await trio.lowlevel.checkpoint()
        readers.append((command, reply, reader))

    session.submit = submit
    await do(agent, caller, cmd.Attach(session="s"))
    if how == "it detaches":
        await do(agent, caller, cmd.Detach(session="s"))
    else:
        caller.ended = True
        let_go(agent, caller)
    session.serve(*readers[0])
    for task in caller.tasks:
        await task()
    assert session.readers == []
    assert caller.watches == {}


async def test_detach_ends_the_watch_in_the_session_too(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s")
    await do(agent, caller, cmd.Attach(session="s"))
    assert await do(agent, caller, cmd.Detach(session="s")) == [{"session": "s"}]
    assert agent.sessions["s"].readers == []
    assert caller.watches == {}
    with pytest.raises(RuleViolation, match=r"^link\.not_attached"):
        await do(agent, caller, cmd.Detach(session="s"))


async def test_10_000_attaches_and_detaches_leave_nothing_d19(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s")
    for number in range(10_000):
        await do(agent, caller, cmd.Attach(session="s"))
        if number % 2:
            await do(agent, caller, cmd.Detach(session="s"))
        else:
            let_go(agent, caller)
    assert agent.sessions["s"].readers == []
    assert caller.watches == {}
    assert caller.state.cursors == {}


async def test_closing_a_session_takes_its_time_elsewhere(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s")
    replies = await do(agent, caller, cmd.Close(session="s"))
    assert replies == []
    await caller.tasks[0]()
    assert replies == [{"session": "s"}]
    assert agent.sessions == {}


async def test_a_close_that_is_refused_is_answered(fake_agent: Any, caller: Caller) -> None:
    agent = fake_agent("s")

    async def refuse(_: str) -> None:
        await trio.lowlevel.checkpoint()
        raise RuleViolation(Code.STORE_FAILED)

    agent.close_session = refuse
    replies = await do(agent, caller, cmd.Close(session="s"))
    await caller.tasks[0]()
    assert [refused.code for refused in replies] == [Code.STORE_FAILED]
