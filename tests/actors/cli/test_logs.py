"""Log lines go to stderr, each one line, whatever it is at that moment, from the level that was asked for."""

import logging

import pytest

from actors.cli.logs import set_up_logging


def test_records_from_the_level_on_are_written_clean(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("warning")
    set_up_logging("info")
    logger = logging.getLogger("actors.gateway")
    logger.debug("hidden")
    logger.info("shown %s", "\x1b[2J\u202e")
    assert capsys.readouterr().err == "INFO actors.gateway: shown ␛[2J�\n"


def test_setting_up_twice_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("error")
    set_up_logging("error")
    logging.getLogger("actors").error("once")
    assert capsys.readouterr().err == "ERROR actors: once\n"
