"""Scenarios of the gateway: clients that attach, lose their connection, come back, read slowly, and are sent away."""

import trio

from actors.testing.sweep import Stage, scenario
from tests.sweeps.gateway_page import Page
from tests.sweeps.gateway_stage import OVER, House, house, made
from tests.sweeps.gateway_wire import CLOSE, frame

ENDS = ("run_completed", "run_failed", "run_cancelled")


@scenario(faults=["cancel", "error", "request", "session", "vanish", "link"], errors_in="*link*")
async def attach(stage: Stage) -> None:
    """A client attaches, sees a run from its beginning to its end, and answers its question."""
    async with house(stage) as here:
        page = here.page()
        here.offer(page)
        here.ended(await page.run("ask", "c1"))
        await here.goes_on()


@scenario(faults=["error", "vanish,session", "request,vanish", "vanish+1:vanish"], errors_in="*link*")
async def replay(stage: Stage) -> None:
    """A client is gone in the middle of a run, comes back with its cursor, then with one of a log that is no more."""
    async with house(stage) as here:
        page = here.page(batch=True)
        page.answers = False
        await _until_asked(here, page)
        page.close()
        page.answers = True
        here.offer(page)
        here.ended(await page.run("ask", "c1"))
        here.withdraw()
        with here.attempt(page):
            await page.connect()
            await page.call("session/open", session="s")
            result = await page.call("session/attach", session="s", log_id="another", cursor=3)
            assert result["mode"] == "reset"


async def _until_asked(here: House, page: Page) -> None:
    """Prompt, and see the question."""
    while True:
        with here.attempt(page):
            part = await page.join()
            await page.call("session/prompt", session="s", text="ask", command="c1", when_busy="queue")
            while not any(event["type"] in ("ask_opened", *ENDS) for event in part.events):
                await page.take()
            return


@scenario(faults=["vanish", "session"])
async def slow_reader(stage: Stage) -> None:
    """Of two clients one reads late: it is cut off, and goes on from its cursor; the other sees everything in time."""
    limits = made(max_outbox_bytes=9_500, write_deadline_s=2.0, close_deadline_s=1.0, max_batch=1)
    async with house(stage, limits=limits) as here:
        slow, quick = here.page(), here.page()
        with here.attempt(slow):
            await slow.join()
        here.offer(slow)
        here.stuff_up(1.5)
        here.losses_planned = 1
        here.planned.add("link.too_slow")
        begun = trio.current_time()
        here.ended(await quick.run("much", "c1"))
        assert trio.current_time() - begun < 1, "one client has held up the session, or the other"
        codes: list[int] = []
        with trio.move_on_after(10):  # where the run was cut short there was not too much for it
            while slow.wire is not None and slow.wire.is_open:
                with here.attempt(slow, codes):
                    await slow.take()
        assert codes == [4008] or stage.struck, f"closed with {codes}"
        here.withdraw()
        here.ended(await slow.run("on", "c2"))


@scenario(faults=["cancel", "session", "vanish", "drain", "vanish+2:drain"])
async def drain(stage: Stage) -> None:
    """The gateway closes while a run is active and two clients look on, of whom one reads nothing any more."""
    async with house(stage) as here:
        page, rude = here.page(), here.page(client="rude")
        for each in (rude, page):
            with here.attempt(each):
                await each.join()
        here.offer(page)
        stage.fault("drain", here.drain_by_message)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.run_beside, "wait")
            await trio.sleep(1)
            here.stuff_up(1_000.0)
            begun = trio.current_time()
            nursery.start_soon(here.gateway.drain)
            here.losses_planned = 2
            codes: list[int] = []
            while page.wire is not None and page.wire.is_open:
                with here.attempt(page, codes):
                    await page.take()
            assert codes == [1012] or stage.struck, f"closed with {codes}"
            await here.gateway.drain()
            limits = here.agent.limits
            assert trio.current_time() - begun <= limits.drain_deadline_s + limits.close_deadline_s, "not in time"
            assert not here.gateway.connections
        stage.withdraw("drain")
        await here.goes_on()


@scenario(faults=["error", "vanish"], errors_in="*link*")
async def superseded(stage: Stage) -> None:
    """A client is back before its first connection has ended: the older one is closed, the session is seen on."""
    async with house(stage) as here:
        old, new = here.page(client="same"), here.page(client="same")
        with here.attempt(old):
            await old.join()
        here.offer(old)
        here.losses_planned = 1
        here.ended(await new.run("on", "c1"))
        codes: list[int] = []
        while old.wire is not None and old.wire.is_open:
            with here.attempt(old, codes):
                await old.take()
        assert codes == [4009] or stage.struck, f"closed with {codes}"
        with here.attempt(new):
            assert await new.leave() == 1000 or stage.struck


@scenario(faults=["error", "session"], errors_in="*link*")
async def calls(stage: Stage) -> None:
    """Calls of every kind, one after the other, the last of which closes the session; the next prompt opens another."""
    async with house(stage) as here:
        page = here.page()
        with here.attempt(page):
            await page.join()
        here.offer(page)
        session = {"session": "s"}
        for method, params in (
            ("session/list", {}),
            ("session/state", session),
            ("session/history", session),
            ("session/event", {"session": "s", "name": "x"}),
            ("session/cancel", session),
            ("session/attach", session),
            ("session/detach", session),
            ("session/close", session),
        ):
            if method == "session/close":
                here.planned |= OVER
            with here.attempt(page):
                await page.join()
                await page.call(method, **params)
        here.ended(await page.run("on", "c1"))


@scenario(faults=["error", "link"], errors_in="*link*")
async def heartbeat(stage: Stage) -> None:
    """One client answers pings and is kept; another one has stopped to, and is gone after its deadline."""
    async with house(stage) as here:
        page, dead = here.page(), here.page()
        with here.attempt(dead):
            await dead.join()
        with here.attempt(page):
            await page.join()
        here.offer(page)
        stage.withdraw("session")
        with trio.CancelScope(deadline=trio.current_time() + 70) as scope:
            while page.wire is not None and page.wire.is_open:
                with here.attempt(page):
                    await page.take()
        await trio.sleep_until(scope.deadline)
        is_open = page.wire is not None and page.wire.is_open
        assert here.gateway.connections == is_open, "a client that is gone is still counted"
        here.withdraw()
        here.ended(await page.run("on", "c1"))
        assert page.wire is not None
        await page.wire.send(frame(CLOSE, b"\x03\xe8"))
