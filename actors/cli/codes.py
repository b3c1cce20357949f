"""Exit codes, and the error that ends a command with one of them and one line."""

from protocol.errors import ActorsError

COMPLETED = 0
FAILED = 1
USAGE = 2
NO_RESPONDER = 3
CANCELLED = 130
# 128 and the number of SIGPIPE, which is what a shell reports of a program that is ended by it.
PIPE_BROKEN = 141


class CommandFailed(ActorsError):
    """The command ends here. The text is one line for whoever typed it."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
