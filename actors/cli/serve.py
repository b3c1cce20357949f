"""`actors serve`: one agent behind a gateway, until a signal ends it."""

import ipaddress
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import trio

from actors.agent.agent import Agent
from actors.cli.agents import Factory, check_agent, find_factory, make_agent, takes
from actors.cli.arguments import Options
from actors.cli.codes import COMPLETED, FAILED, USAGE, CommandFailed
from actors.cli.files import read_token, write_token
from actors.cli.leaving import LastResort, last_resort
from actors.cli.stores import MEMORY, count_waiting, made_private, not_opened, reading
from actors.client.errors import plain_errors
from actors.gateway import open_gateway
from actors.gateway.access import check_token_shape, make_token
from actors.stores import SqliteStore, StoreError
from protocol.limits import DEFAULT_LIMITS

# From the signal: clients go within DRAIN_S, runs within CLOSE_S, and the process ends by LAST_S whatever happens.
DRAIN_S = 1.5
CLOSE_S = 4.0
LAST_S = 4.8
LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, drain_deadline_s=DRAIN_S, close_deadline_s=0.5)
_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})


def serve(options: Options) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP, and return the exit code.

    Raises:
        CommandFailed: The address, the token or the agent cannot be used.
    """
    check_address(options)
    factory = find_factory(options.agent)
    settings, kept_in = store_settings(options, factory)
    with token_file(options.token_file) as (path, token):

        def cleanup() -> None:
            if not options.token_file:
                shutil.rmtree(path.parent, ignore_errors=True)

        async def main() -> int:
            with last_resort(LAST_S, FAILED, cleanup) as resort, plain_errors():
                with trio.CancelScope() as scope:
                    try:
                        async with make_agent(factory, options.agent, **settings) as agent:
                            check_agent(agent, options.agent)
                            await _serve(agent, options, token, path, kept_in, scope, resort)
                    except StoreError as error:
                        raise not_opened(error) from None
            return COMPLETED

        code = trio.run(main)
    _say_what_waits(kept_in)
    return code


def store_settings(options: Options, factory: Factory) -> tuple[dict[str, Any], Path | None]:
    """Return what the agent is told of its store, and the file of that; None where nothing is kept, or the agent of the
    user decides.

    Raises:
        CommandFailed: The store cannot be made, or the user's agent cannot be told.
    """
    asked = {"--store": options.store, "--resume": options.resume != "auto", "--idle": options.idle is not None}
    for option, name in (("--store", "store"), ("--resume", "resume"), ("--idle", "idle_s")):
        if asked[option] and not takes(factory, name):
            raise CommandFailed(f"{option}: {options.agent} has no parameter {name!r} to be told by", USAGE)
    settings: dict[str, Any] = {}
    if asked["--resume"]:
        settings["resume"] = options.resume
    if asked["--idle"]:
        settings["idle_s"] = options.idle
    if options.store == MEMORY or not takes(factory, "store"):
        return settings, None
    path = made_private(options.store)
    return {**settings, "store": SqliteStore(path)}, path


def _say_what_waits(path: Path | None) -> None:
    if path is None:
        return
    with suppress(CommandFailed), reading(str(path)) as reader:
        waiting = count_waiting(reader)
        if waiting:
            print(f"{waiting} session{' waits' if waiting == 1 else 's wait'} in {path}", flush=True)


def check_address(options: Options) -> None:
    """Refuse to be reachable by others without that having been asked for in full.

    Raises:
        CommandFailed: Another address than a loopback one without a token file, or all addresses without a name.
    """
    if not is_loopback(options.host) and not options.token_file:
        raise CommandFailed(
            f"listening on {options.host or 'every address'} lets others connect; name the token they need: "
            f"--token-file FILE", USAGE
        )  # fmt: skip
    if options.host in _EVERYWHERE and not options.allow_host:
        raise CommandFailed("listening on every address needs the name clients use: --allow-host NAME", USAGE)


def is_loopback(host: str) -> bool:
    """Say whether only this machine can connect to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def token_file(name: str) -> Generator[tuple[Path, str]]:
    """Yield a file that holds the token, and the token. An unnamed one is removed at the end.

    Raises:
        CommandFailed: It cannot be read or written, others may read it, or the token is too short.
    """
    if name and Path(name).exists():
        token = read_token(name)
        try:
            check_token_shape(token)
        except ValueError as error:
            raise CommandFailed(f"{name}: {error}", USAGE) from None
        yield Path(name), token
        return
    token = make_token()
    if name:
        write_token(Path(name), token)
        yield Path(name), token
        return
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    directory = Path(tempfile.mkdtemp(prefix="actors-", dir=runtime if os.path.isdir(runtime) else None))
    try:
        write_token(directory / "token", token)
        yield directory / "token", token
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _serve(
    agent: Agent,
    options: Options,
    token: str,
    path: Path,
    kept_in: Path | None,
    scope: trio.CancelScope,
    resort: LastResort,
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        try:
            async with open_gateway(
                agent, host=options.host, port=options.port, token=token, limits=LIMITS,
                hosts=options.allow_host, origins=options.allow_origin,
            ) as gateway:  # fmt: skip
                print(f"serving {gateway.url}\ntoken file {path}", flush=True)
                if kept_in is not None:
                    print(f"store {kept_in}", flush=True)
                await anext(signals)
                resort.arm()
                scope.deadline = trio.current_time() + CLOSE_S
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_leave_at_once, signals, scope)
                    await gateway.drain(1012)
                    nursery.cancel_scope.cancel(reason="all clients have gone")
        except ValueError as error:
            raise CommandFailed(str(error), USAGE) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            where = f"{options.host}:{options.port}"
            raise CommandFailed(f"cannot listen on {where}: {error.strerror or error}") from None


async def _leave_at_once(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    await anext(signals)
    scope.cancel(reason="a second signal")
