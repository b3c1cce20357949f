"""Scenarios of clients whose sessions are in a file: out of memory, back when they are addressed, closed at last."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import trio

from actors.stores import SqliteStore
from actors.testing.sweep import Stage, scenario
from protocol import commands as cmd
from protocol.errors import RuleViolation
from protocol.history import fold
from tests.sweeps.gateway_page import Page
from tests.sweeps.gateway_stage import OVER, House, house

IDLE_S = 60.0


@asynccontextmanager
async def stored_house(stage: Stage) -> AsyncGenerator[House]:
    """A house whose sessions are in a file; what the file has in the end is what its checks look at."""
    folder = Path(mkdtemp())
    try:
        async with house(stage, store=SqliteStore(folder / "s.db"), resume="auto", idle_s=IDLE_S) as here:
            try:
                yield here
            finally:
                with trio.move_on_after(1_000, shield=True):
                    await _keep_log(here)
    finally:
        rmtree(folder)


async def _keep_log(here: House) -> None:
    await here.agent.session("s").cancel("the scenario is over")
    await here.agent.session("s").wait_idle()
    session = await here.agent.open("s")
    await session.wait_committed(session.state.seq)
    log = list(await here.agent.store.read("s", after=0, limit=10_000))
    assert fold(log) == session.state, "the fold of the log is not the state"
    here.store.logs[session.state.log_id] = log


async def _leave_memory(here: House, page: Page) -> None:
    """Nobody watches the session any more, so it goes."""
    with here.attempt(page):
        await page.join()
        await page.call("session/detach", session="s")
    page.close()
    await trio.sleep(2 * IDLE_S)
    assert here.agent.find("s") is None or here.stage.struck, "it is idle and did not leave memory"


@scenario(faults=["cancel", "error", "request", "session", "vanish", "link", "session,request"], errors_in="*link*")
async def session_in_a_file(stage: Stage) -> None:
    """A client asks for the state of a session that has left memory, then one in the process, then both close it."""
    async with stored_house(stage) as here:
        page = here.page()
        here.offer(page)
        here.ended(await page.run("ask", "c1"))
        await _leave_memory(here, page)
        here.planned |= OVER
        with here.attempt(page):
            await page.connect()
            listed = await page.call("session/list")
            assert [one["session"] for one in listed["sessions"]] == ["s"]
            assert (await page.call("session/state", session="s"))["snapshot"]["session"] == "s"
        await _leave_memory(here, page)
        await _submit(here)
        await _leave_memory(here, page)
        await here.agent.session("s").close()
        assert here.agent.find("s") is None
        with here.attempt(page):
            await page.join()
            await page.call("session/close", session="s")
        here.ended(await page.run("on", "c2"))


async def _submit(here: House) -> None:
    """Put a command into the session's mailbox, which brings it back."""
    replies: list[Any] = []
    try:
        await here.agent.session("s").submit(cmd.GetState("s"), replies.append)
    except RuleViolation as refused:
        if "session" not in here.stage.struck or refused.code not in OVER:
            raise
        return
    await trio.sleep(1)
    assert len(replies) == 1, "it is answered once"


@scenario(faults=["cancel", "session", "request", "vanish", "vanish+1:session"], errors_in="*link*")
async def session_that_is_closed_while_it_is_away(stage: Stage) -> None:
    """Its run was interrupted, and it is closed before it is addressed again: the run has its end, no other life."""
    async with stored_house(stage) as here:
        page = here.page()
        page.answers = False
        here.offer(page)
        with here.attempt(page):
            await page.join()
            await page.call("session/prompt", session="s", text="ask", command="c1")
            await page.call("session/detach", session="s")
        page.close()
        here.shut_session()
        await trio.sleep(1)
        await here.agent.session("s").close()
        page.answers = True
        here.ended(await page.run("on", "c2"))
