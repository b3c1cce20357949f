"""`actors run`: a gateway on a free loopback port and a client of it, in one process, for the length of one run."""

import sys
from pathlib import Path
from typing import Any

import trio

from actors.agent.agent import Agent
from actors.cli.agents import check_agent, find_factory, make_agent, takes
from actors.cli.arguments import Options
from actors.cli.codes import CANCELLED, COMPLETED, FAILED, NO_RESPONDER, USAGE, CommandFailed
from actors.cli.files import read_answers, read_task
from actors.cli.leaving import LastResort, last_resort
from actors.cli.show import show
from actors.cli.stores import MEMORY, made_private, not_opened
from actors.client import Connection, Detached, LinkClosed, Refused, connect
from actors.client.answers import AnswerFile
from actors.client.blocks import Ended
from actors.client.errors import plain_errors
from actors.client.text import one_line
from actors.client.watch import Watch
from actors.gateway import open_gateway
from actors.stores import SqliteStore, StoreError

# The second Ctrl-C leaves in order if that is quick, and at any rate.
ABORT_S = 1.0


def run(options: Options) -> int:
    """Run the task of a file and return the exit code.

    Raises:
        CommandFailed: It could not be begun, or the run failed.
        KeyboardInterrupt: Ctrl-C before the run began or after it ended.
    """
    text = read_task(options.file)
    answers = read_answers(options.answers)
    factory = find_factory(options.agent, options.max_turns)
    settings: dict[str, Any] = {}
    kept_in: Path | None = None
    if options.store and options.store != MEMORY:
        if not takes(factory, "store"):
            raise CommandFailed(f"--store: {options.agent} has no parameter 'store' to be told by", USAGE)
        kept_in = made_private(options.store)
        settings["store"] = SqliteStore(kept_in)

    async def main() -> int:
        with last_resort(ABORT_S, CANCELLED) as resort, plain_errors():
            try:
                async with make_agent(factory, options.agent, **settings) as agent:
                    check_agent(agent, options.agent)
                    watch, ended = await _run_on(agent, text, answers, options, kept_in, resort)
            except StoreError as error:
                raise not_opened(error) from None
        return exit_code(watch, ended)

    return trio.run(main)


async def _run_on(
    agent: Agent,
    text: str,
    answers: AnswerFile | None,
    options: Options,
    kept_in: Path | None,
    resort: LastResort,
) -> tuple[Watch, Ended | None]:
    turns = {} if options.max_turns is None else {"max_turns": options.max_turns}
    async with open_gateway(agent) as gateway, connect(gateway.url, gateway.token) as connection:
        try:
            session = await _begin(connection, options.session)
            attachment = await connection.attach(session)
            if kept_in is not None:
                print(f"session {session} in {kept_in}", file=sys.stderr)
            if (attachment.snapshot or {}).get("status") != "idle":
                print(f"it goes on where it was interrupted; {options.file} is not sent", file=sys.stderr)
            else:
                await connection.call(
                    "session/prompt", session=session, text=text, command=connection.new_command(), **turns
                )
            return await show(connection, attachment, once=True, answers=answers, on_abort=resort.arm)
        except (Refused, Detached, LinkClosed) as error:
            raise CommandFailed(one_line(str(error), 400)) from None


async def _begin(connection: Connection, session: str) -> str:
    named = {"session": session} if session else {}
    opened = await connection.call("session/open", command=connection.new_command(), **named)
    return str(opened["session"])


def exit_code(watch: Watch, ended: Ended | None) -> int:
    """Return the exit code of a run, having said on stderr why it is not 0.

    Raises:
        CommandFailed: The run failed.
    """
    if watch.unanswered:
        print(f"actors: no_responder: nobody answered {watch.unanswered!r}; give it in --answers FILE, "
              f"or run on a terminal", file=sys.stderr)  # fmt: skip
        return NO_RESPONDER
    if ended is None or ended.kind == "cancelled":
        return CANCELLED
    if ended.kind == "failed":
        raise CommandFailed(f"{ended.code}: {one_line(ended.message, 400)}", FAILED)
    return COMPLETED
