"""The process of a server that is to be killed: started cold or forked, listened to, killed, waited for.

It decides nothing about when; it must not know what the server does, or what its clients see.
"""

import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec
import trio

from tests.faults.kill_server_program import Life, arguments

REPOSITORY = Path(__file__).parents[2]
START_S = 60.0


class LifeProcess:
    """One life of the server.

    Attributes:
        pid: Its process.
        opening_ns: When it began to open its store, on the monotonic clock.
        port: Where it listens, once it is ready.
        ready_ns: When that was heard, on the monotonic clock.
        status: How it ended: its exit code, or minus the signal.
        opening, ready, ended: Set when it has come so far; all of them once it has ended.
    """

    def __init__(self) -> None:
        self.pid = 0
        self.opening_ns = 0
        self.port = 0
        self.ready_ns = 0
        self.status: int | None = None
        self.opening = trio.Event()
        self.ready = trio.Event()
        self.ended = trio.Event()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, unless it has ended."""
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def hear(self, line: str) -> None:
        """Take one line of what is said about it."""
        word, pid, number = line.split()
        if word == "opening":
            self.pid, self.opening_ns = int(pid), int(number)
            self.opening.set()
        elif word == "ready":
            self.port, self.ready_ns = int(number), time.monotonic_ns()
            self.ready.set()
        else:
            self.end(int(number))

    def end(self, status: int) -> None:
        """It has ended."""
        self.status = status
        self.opening.set()
        self.ready.set()
        self.ended.set()


class Launcher:
    """Starts one life after the other. Made by `open_launcher`."""

    def __init__(self, nursery: trio.Nursery, forker: trio.Process, errors: IO[bytes]) -> None:
        self._nursery = nursery
        self._forker = forker
        self._errors = errors
        self._life: LifeProcess | None = None

    async def start(self, life: Life, *, cold: bool = False) -> LifeProcess:
        """Start a life, the one before having ended, and return when it begins to open its store. A checkpoint.

        Args:
            life: What it is started with.
            cold: As a new process that imports everything, not as a fork of one that has.
        """
        assert self._life is None or self._life.ended.is_set(), "one life at a time"
        self._life = process = LifeProcess()
        if cold:
            cold_process = await _open(arguments("serve", life), self._errors)
            self._nursery.start_soon(_follow_cold, cold_process, process)
        else:
            assert self._forker.stdin is not None
            await self._forker.stdin.send_all(msgspec.json.encode(life) + b"\n")
        with trio.fail_after(START_S):
            await process.opening.wait()
        return process

    async def hear(self) -> None:
        """Listen to the forking process until it ends."""
        assert self._forker.stdout is not None
        async for line in _lines(self._forker.stdout):
            if self._life is not None:
                self._life.hear(line)


@asynccontextmanager
async def open_launcher(errors: Path) -> AsyncGenerator[Launcher]:
    """Start the forking process. At the end it is gone, and so is every life.

    Args:
        errors: A file that gets what the processes write to stderr.
    """
    with errors.open("ab") as file:
        async with trio.open_nursery() as nursery:
            forker = await _open(arguments("fork"), file)
            launcher = Launcher(nursery, forker, file)
            nursery.start_soon(launcher.hear)
            try:
                yield launcher
            finally:
                with trio.CancelScope(shield=True):
                    assert forker.stdin is not None
                    await forker.stdin.aclose()  # a life ends with it, and it with its life
                    with trio.move_on_after(10):
                        await forker.wait()
                    if forker.returncode is None:
                        forker.kill()
                    await forker.wait()
                nursery.cancel_scope.cancel(reason="no more lives")
            assert forker.stdout is not None
            await forker.stdout.aclose()


async def _follow_cold(process: trio.Process, life: LifeProcess) -> None:
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async for line in _lines(process.stdout):
            life.hear(line)
        life.end(await process.wait())
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            await process.stdout.aclose()
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _open(command: list[str], errors: IO[bytes]) -> trio.Process:
    return await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=REPOSITORY
    )


async def _lines(stream: trio.abc.ReceiveStream) -> AsyncGenerator[str]:
    """Yield whole lines. Left only at their end, so that nothing is to be closed."""
    rest = b""
    async for data in stream:
        *lines, rest = (rest + bytes(data)).split(b"\n")
        for line in lines:
            yield line.decode()
