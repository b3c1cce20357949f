"""`actors attach`: the view of a session on a server that is running."""

import os
import sys

import trio

from actors.cli.arguments import Options
from actors.cli.codes import COMPLETED, USAGE, CommandFailed
from actors.cli.files import read_answers, read_token
from actors.cli.show import show
from actors.client import ConnectFailed, Connection, Detached, LinkClosed, Refused, connect
from actors.client.address import parse_url
from actors.client.answers import AnswerFile
from actors.client.text import one_line
from protocol.errors import Code

TOKEN_VARIABLE = "ACTORS_TOKEN"


def attach(options: Options) -> int:
    """Watch a session until the person detaches or it is closed, and return the exit code.

    Raises:
        CommandFailed: There is no connection, no such session, or the connection ended.
    """
    token = read_token(options.token_file) if options.token_file else os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise CommandFailed(f"attach needs a token: --token-file FILE, or the variable {TOKEN_VARIABLE}", USAGE)
    if not token.isascii() or not token.isprintable():
        raise CommandFailed(f"the variable {TOKEN_VARIABLE} does not hold a token", USAGE)
    answers = read_answers(options.answers)
    try:
        parse_url(options.url)
    except ConnectFailed as wrong:
        raise CommandFailed(str(wrong), USAGE) from None

    async def main() -> int:
        try:
            async with connect(options.url, token) as connection:
                return await _watch(connection, options, answers)
        except LinkClosed as closed:
            said = {1001: "the server has closed", 1012: "the server is restarting; attach again when it is back"}
            raise CommandFailed(said.get(closed.close_code, one_line(str(closed), 400))) from None
        except ConnectFailed as failed:
            raise CommandFailed(one_line(str(failed), 400)) from None

    return trio.run(main)


async def _watch(connection: Connection, options: Options, answers: AnswerFile | None) -> int:
    try:
        if options.create:
            await connection.call("session/open", session=options.session, command=connection.new_command())
        attachment = await connection.attach(options.session)
        await show(connection, attachment, once=False, answers=answers)
    except Detached as detached:
        if detached.code != Code.SESSION_CLOSED:
            raise CommandFailed(str(detached)) from None
        print("the session was closed", file=sys.stderr)
    except Refused as refused:
        if refused.code == Code.SESSION_UNKNOWN:
            raise CommandFailed(f"the server has no session {options.session!r}; --create makes it") from None
        raise CommandFailed(one_line(str(refused), 400)) from None
    return COMPLETED
