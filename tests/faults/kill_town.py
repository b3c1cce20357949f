"""What the clients of a server that is killed share: where it is, whether it is there, and all that they have sent."""

import time
from collections import Counter

import trio

from tests.faults.kill_view import Command, Findings


class Town:
    """What the clients of one server share.

    Attributes:
        url: Where the server listens.
        answered: Set when the first attach of this life was answered, or its server is gone.
        answered_ns: When it was answered, on the monotonic clock; 0 before.
        attached: How many clients are attached in this life.
        joined: Set each time that one more is.
        over: The server is being killed: who is cut off does not come back in this life.
        cut_off: How often somebody was cut off before, and why.
        clients: How many there are.
        sure: Clients that, nothing new being begun, know what became of all that they sent.
        finishing: Nothing new is begun: what is open is brought to its end.
        commands: Everything that was sent, whoever sent it.
    """

    def __init__(self, token: str, findings: Findings) -> None:
        self.url = ""
        self.token = token
        self.findings = findings
        self.answered_ns = 0
        self.answered = trio.Event()
        self.attached = 0
        self.joined = trio.Event()
        self.over = False
        self.cut_off: Counter[str] = Counter()
        self.sure: set[str] = set()
        self.clients = 0
        self.finishing = False
        self.commands: list[Command] = []

    def new_life(self, url: str) -> None:
        """The server is back."""
        self.url, self.answered_ns, self.answered, self.attached = url, 0, trio.Event(), 0
        self.over = False

    def end_life(self) -> None:
        """The server is gone, and comes back."""
        self.over = True
        self.answered.set()  # who waits for it has nothing to wait for in this life

    def attach_answered(self) -> None:
        """An attach was answered just now."""
        if not self.answered.is_set():
            self.answered_ns = time.monotonic_ns()
            self.answered.set()

    def join(self) -> None:
        """One more client is attached to all that it watches."""
        self.attached += 1
        self.joined.set()

    async def wait_attached(self, count: int) -> None:
        """Wait until so many clients are attached. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self.attached < count:
            self.joined = trio.Event()
            await self.joined.wait()
