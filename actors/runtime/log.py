"""The runtime's log. What a handler or filter of the host raises stays here: it is never the end of a supervisor."""

import contextlib
import logging
import sys

logger = logging.getLogger("actors.runtime")


def warning(text: str, *args: object) -> None:
    """Log a warning. Never raises."""
    with contextlib.suppress(Exception):
        logger.warning(text, *args)


def error(text: str, *args: object, cause: BaseException | None = None) -> None:
    """Log an error, with the traceback of what caused it. Never raises."""
    with contextlib.suppress(Exception):
        logger.error(text, *args, exc_info=cause)


def exception(text: str, *args: object) -> None:
    """Log an error with the exception that is being handled. Never raises."""
    with contextlib.suppress(Exception):
        logger.error(text, *args, exc_info=sys.exc_info())
