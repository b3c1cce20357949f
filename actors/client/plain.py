"""Without a terminal: one line after the other, no escape codes, nobody to ask but a file of answers."""

from typing import TextIO

from actors.client.blocks import Block, Ended
from actors.client.render import plain, signs
from actors.client.text import one_line
from actors.client.watch import Watch
from protocol.asks import Ask


class Plain:
    """Writes a watch to `out`, line by line, each as soon as it is known."""

    def __init__(self, watch: Watch, out: TextIO) -> None:
        self._watch = watch
        self._out = out
        self._marks = signs(out.encoding or "ascii")
        self._begun = watch.once

    async def run(self) -> Ended | None:
        """Write until the watch ends; return how its run ended.

        Raises:
            OSError: Nobody reads `out` any more.
        """
        return await self._watch.run(self)

    def block(self, block: Block) -> None:
        self._write(plain(block, self._marks))

    def opened(self, ask: Ask) -> None:
        for question in ask.questions:
            options = ", ".join(one_line(option.label, 60) for option in question.options)
            self._write(f"? {one_line(question.question)}{f' [{options}]' if options else ''} (open)")

    def notice(self, text: str) -> None:
        self._write(f"({one_line(text)})")

    def changed(self) -> None:
        """Nothing is redrawn here; once, it is said what somebody else's session is doing."""
        if not self._begun:
            self._begun = True
            self._write(f"(attached, {self._watch.view.status})")

    def _write(self, text: str) -> None:
        print(text, file=self._out, flush=True)
