"""The command `actors`. What a command needs is imported when it runs: `actors --help` loads none of it."""

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from actors.cli.arguments import Options, parse
from actors.cli.codes import CANCELLED, FAILED, PIPE_BROKEN, USAGE, CommandFailed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. See `actors --help` for what the codes mean.

    Args:
        argv: The arguments without the program's name; None takes those of the process.

    Raises:
        SystemExit: For `--help`, `--version` and wrong arguments, as argparse does.
    """
    _replace_closed_streams()
    options = parse(argv)
    for stream in (sys.stdout, sys.stderr):
        # A sign that the terminal cannot show must not end a run.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return _command(options)
    except CommandFailed as failed:
        with suppress(OSError):
            print(f"actors: {failed}", file=sys.stderr)
        return failed.exit_code
    except KeyboardInterrupt:
        return CANCELLED
    except OSError as error:
        if error.errno == errno.ENOSPC:
            with suppress(OSError):
                print(f"actors: cannot write the output: {error.strerror}", file=sys.stderr)
            return FAILED
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        return PIPE_BROKEN
    finally:
        _flush()


def _replace_closed_streams() -> None:
    """Give a stream that the shell has closed (`<&-`, `>&-`) something to stand on: Python sets it to None.

    It comes first, so that the number of a closed stream is not given to a socket.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it stays open as long as the process


def _flush() -> None:
    """Write what is left. If whoever read it has gone, let it go: Python would complain when it flushes at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(options: Options) -> int:
    from actors.cli.logs import set_up_logging

    set_up_logging(options.log_level)
    if options.command == "run":
        from actors.cli.run import run

        return run(options)
    if options.command == "serve":
        from actors.cli.serve import serve

        return serve(options)
    if options.command == "sessions":
        from actors.cli.sessions import sessions

        return sessions(options)
    from actors.cli.attach import attach

    return attach(options)


__all__ = ["CANCELLED", "FAILED", "PIPE_BROKEN", "USAGE", "main"]
