"""Logging of the command: everything under `actors`, on stderr, one sanitised line per record."""

import logging
import sys
from typing import TextIO

from actors.client.text import clean


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is now: while a live view is up, that is a place above it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _CleanFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


def set_up_logging(level: str) -> None:
    """Log `actors.*` from `level` on. Called again, it changes the level."""
    logger = logging.getLogger("actors")
    logger.setLevel(level.upper())
    if not any(isinstance(handler, _CurrentStderr) for handler in logger.handlers):
        handler = _CurrentStderr()
        handler.setFormatter(_CleanFormatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
