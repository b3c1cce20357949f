"""A terminal: keys in, the live area and what scrolls by out. The modes it changes are put back on every way out."""

import errno
import os
import signal
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager, suppress

import trio
from rich.console import Console
from rich.live import Live

from actors.client.blocks import Block, Ended
from actors.client.dialogue import Say, Send
from actors.client.keys import Key, KeyReader, Line, Typed
from actors.client.render import LiveArea, rich_block, signs
from actors.client.watch import Watch
from protocol.asks import Ask

FRAME_S = 0.04
# A terminal sends the rest of a sequence at once; a person does not follow Esc by another key within this.
ESCAPE_S = 0.05
_PASTE_ON, _PASTE_OFF = b"\x1b[?2004h", b"\x1b[?2004l"


class KeyMode:
    """Keys come at once and unseen, pasted text is marked as such.

    Args:
        keyboard: Descriptor of the terminal that is typed on.
        screen: Descriptor of the terminal that is written to.
    """

    def __init__(self, keyboard: int, screen: int) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._saved = termios.tcgetattr(keyboard)

    def enter(self) -> None:
        """Set the modes. Idempotent."""
        tty.setcbreak(self._keyboard, termios.TCSADRAIN)
        os.write(self._screen, _PASTE_ON)

    def leave(self) -> None:
        """Put back what was found."""
        # The terminal itself may have gone away; there is nothing to put back then.
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._saved)
        with suppress(OSError):
            os.write(self._screen, _PASTE_OFF)


@contextmanager
def key_mode(keyboard: int, screen: int) -> Generator[KeyMode]:
    """Yield the terminal's key mode, entered, and leave it on every way out."""
    mode = KeyMode(keyboard, screen)
    try:
        mode.enter()
        yield mode
    finally:
        mode.leave()


class Terminal:
    """The person's end of a watch."""

    def __init__(self, watch: Watch, console: Console, keyboard: int) -> None:
        self._watch = watch
        self._console = console
        self._keyboard = keyboard
        self._marks = signs(console.encoding)
        self._keys = KeyReader()
        self._line = Line()
        self._area = LiveArea(watch.view, watch.dialogue, self._marks, once=watch.once)
        self._live = self._new_live()
        self._dirty = trio.Event()

    def _new_live(self) -> Live:
        return Live(
            self._area,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=True,
            redirect_stderr=sys.stderr.isatty(),
            vertical_overflow="crop",
        )

    async def run(self) -> Ended | None:
        """Show the session and take what is typed until the watch ends; return how its run ended."""
        try:
            with (
                trio.open_signal_receiver(signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH) as signals,
                key_mode(self._keyboard, self._console.file.fileno()) as mode,
            ):

                async def take_signals() -> None:
                    async for number in signals:
                        self._take_signal(number, mode)

                try:
                    self._live.start()
                    return await self._watch.run(self, self._read_keys, self._paint, take_signals)
                finally:
                    self._live.stop()
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):
                raise
            self._watch.abort()  # the terminal is gone
            return self._watch.ended

    def _take_signal(self, number: int, mode: KeyMode) -> None:
        if number == signal.SIGTSTP:
            self._live.stop()
            mode.leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            # Here it goes on when the shell says so. What the shell has written meanwhile stays: a new live area
            # begins below it.
            self._live = self._new_live()
            self._live.start()
        if number != signal.SIGWINCH:
            mode.enter()
        self._dirty.set()

    # ---- what the watch tells

    def block(self, block: Block) -> None:
        self._console.print(rich_block(block, self._marks))

    def opened(self, ask: Ask) -> None:
        self._console.bell()

    def notice(self, text: str) -> None:
        self._area.notice = text

    def changed(self) -> None:
        if self._watch.dialogue.follow(self._watch.view) and self._line.text:
            self._line.text = self._area.typed = ""
            self._area.notice = "the question changed while you typed; please type again"
        self._dirty.set()

    # ---- tasks

    async def _paint(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty = trio.Event()
            self._live.refresh()
            # Events and keys that come meanwhile share the next frame.
            await trio.sleep(FRAME_S)

    async def _read_keys(self) -> None:
        while True:
            with trio.move_on_after(ESCAPE_S if self._keys.waiting else float("inf")) as patience:
                await trio.lowlevel.wait_readable(self._keyboard)
            if patience.cancelled_caught:
                keys = self._keys.flush()
            else:
                try:
                    data = os.read(self._keyboard, 65_536)
                except OSError:
                    data = b""
                if not data:  # the terminal is gone
                    self._watch.abort()
                    return
                keys = self._keys.feed(data)
            for key in keys:
                self._press(key)
            self._area.typed = self._line.text
            self._dirty.set()

    def _press(self, key: Key | Typed) -> None:
        watch = self._watch
        self._area.notice = ""
        if key is Key.ESCAPE:
            if self._line.text:
                self._line.text = ""
            else:
                self._do(watch.dialogue.escape(watch.view))
        elif key is Key.END_OF_INPUT:
            if not self._line.text and not watch.once:
                watch.leave()
        else:
            finished = self._line.press(key)
            if finished is not None:
                self._do(watch.dialogue.submit(watch.view, finished), finished)

    def _do(self, meant: Send | Say | None, line: str = "") -> None:
        if isinstance(meant, Send):
            self._watch.perform(meant, self)
        elif isinstance(meant, Say):
            self._area.notice = meant.message
            self._line.text = line  # what was not understood can be corrected
