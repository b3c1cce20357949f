"""How a command shows a session: on a terminal where there is one, in plain lines otherwise."""

import os
import sys
from collections.abc import Callable

from actors.client import Attachment, Connection
from actors.client.answers import AnswerFile
from actors.client.blocks import Ended
from actors.client.plain import Plain
from actors.client.watch import Watch


def on_terminal() -> bool:
    """Say whether somebody can be shown something here and asked for an answer."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


async def show(
    connection: Connection,
    attachment: Attachment,
    *,
    once: bool,
    answers: AnswerFile | None,
    on_abort: Callable[[], None] = lambda: None,
) -> tuple[Watch, Ended | None]:
    """Follow a session to the end of its run (`once`) or until the person leaves.

    Raises:
        Detached: The session sends no more.
        LinkClosed: The connection ended.
        OSError: Nobody reads the output any more.
    """
    person = on_terminal()
    watch = Watch(connection, attachment, once=once, person=person, answers=answers, on_abort=on_abort)
    if not person:
        return watch, await Plain(watch, sys.stdout).run()
    from rich.console import Console

    from actors.client.terminal import Terminal

    return watch, await Terminal(watch, Console(highlight=False), sys.stdin.fileno()).run()
