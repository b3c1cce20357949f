"""Files that are named on the command line: read whole, checked, or refused with one line."""

import os
import stat
import sys
from pathlib import Path

from actors.cli.codes import USAGE, CommandFailed
from actors.client.answers import AnswerFile, AnswersInvalid, parse_answers
from protocol.ids import is_blank
from protocol.limits import DEFAULT_LIMITS

STDIN = "-"
_MAX_BYTES = 4 * DEFAULT_LIMITS.max_prompt_chars
_MAX_TOKEN_BYTES = 1_024


def read_task(name: str) -> str:
    """Return the text of a task file, or of standard input for `-`.

    Raises:
        CommandFailed: It cannot be read, is not UTF-8, is empty or too long.
    """
    shown = "standard input" if name == STDIN else name
    data = sys.stdin.buffer.read(_MAX_BYTES + 1) if name == STDIN else _read(Path(name), _MAX_BYTES)
    text = _decode(data, shown)
    if is_blank(text):
        raise CommandFailed(f"{shown} is empty: there is nothing to run", USAGE)
    if len(text) > DEFAULT_LIMITS.max_prompt_chars:
        raise CommandFailed(f"{shown} has over {DEFAULT_LIMITS.max_prompt_chars} characters", USAGE)
    return text


def read_answers(name: str) -> AnswerFile | None:
    """Return the answers of a file, or None where no file is named.

    Raises:
        CommandFailed: It cannot be read or has the wrong shape.
    """
    if not name:
        return None
    text = _decode(_read(Path(name), _MAX_BYTES), name)
    try:
        return parse_answers(text)
    except AnswersInvalid as invalid:
        raise CommandFailed(f"{name} {invalid}", USAGE) from None


def read_token(name: str) -> str:
    """Return the token in a file.

    Raises:
        CommandFailed: It cannot be read, others may read it, or it holds no token.
    """
    path = Path(name)
    data = _read(path, _MAX_TOKEN_BYTES)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise CommandFailed(f"{name} can be read by others; make it yours alone: chmod 600 {name}", USAGE)
    token = _decode(data, name).strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise CommandFailed(f"{name} does not hold a token", USAGE)
    return token


def write_token(path: Path, token: str) -> None:
    """Write a new file that only its owner can read.

    Raises:
        CommandFailed: It cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}", USAGE) from None


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}", USAGE) from None
    except ValueError as error:  # a name that no file can have
        raise CommandFailed(f"cannot read the file: {error}", USAGE) from None
    return data


def _decode(data: bytes, shown: str) -> str:
    if len(data) > _MAX_BYTES:
        raise CommandFailed(f"{shown} is over {_MAX_BYTES} bytes", USAGE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{shown} is not UTF-8 text (byte {error.start})", USAGE) from None
