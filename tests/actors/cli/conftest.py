"""What the tests of the command share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """The command sets up logging for its process; the tests go on in theirs."""
    logger = logging.getLogger("actors")
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield
    logger.level, logger.propagate, logger.handlers[:] = before
