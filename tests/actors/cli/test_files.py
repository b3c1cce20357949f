"""A file is read whole and checked, or refused in one line."""

import io
import os
import stat
from pathlib import Path

import pytest

from actors.cli.codes import CommandFailed
from actors.cli.files import read_answers, read_task, read_token, write_token


def refused(call: object, *args: object) -> str:
    with pytest.raises(CommandFailed) as failed:
        call(*args)  # type: ignore[operator]
    assert failed.value.exit_code == 2
    return str(failed.value)


def test_a_task_is_the_text_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "task.md"
    path.write_bytes("\ufeff- größer\r\n".encode())
    assert read_task(str(path)) == "- größer\r\n"


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"- one")))
    assert read_task("-") == "- one"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b" \n")))
    assert refused(read_task, "-") == "standard input is empty: there is nothing to run"


def test_a_task_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "task.md"
    assert refused(read_task, str(path)) == f"cannot read {path}: No such file or directory"
    assert refused(read_task, str(tmp_path)) == f"cannot read {tmp_path}: Is a directory"
    assert refused(read_task, "a\0b") == "cannot read the file: embedded null byte"
    path.write_bytes(b"ab\xff")
    assert refused(read_task, str(path)) == f"{path} is not UTF-8 text (byte 2)"
    path.write_text("\u200b\n")
    assert refused(read_task, str(path)) == f"{path} is empty: there is nothing to run"
    path.write_text("x" * 1_000_001)
    assert refused(read_task, str(path)) == f"{path} has over 1000000 characters"
    path.write_text("x" * 4_000_001)
    assert refused(read_task, str(path)) == f"{path} is over 4000000 bytes"


def test_answers_are_optional_and_checked_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    assert read_answers("") is None
    assert refused(read_answers, str(path)) == f"cannot read {path}: No such file or directory"
    path.write_text("5")
    assert refused(read_answers, str(path)) == (
        f"{path} must be an object (question text to answer) or an array (answers in order)"
    )
    path.write_text("[]")
    assert read_answers(str(path)) is not None


def test_a_token_is_written_for_its_owner_only_and_never_over_another_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    before = os.umask(0)
    try:
        write_token(path, "a-token")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token(str(path)) == "a-token"
    assert refused(write_token, path, "other") == f"cannot write {path}: File exists"
    assert read_token(str(path)) == "a-token"


def test_a_token_that_others_can_read_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_token(path, "a-token")
    path.chmod(0o640)
    assert refused(read_token, str(path)) == f"{path} can be read by others; make it yours alone: chmod 600 {path}"


@pytest.mark.parametrize("content", ["", "two words", "größer", "a\x1bb"])
def test_what_is_no_token_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(0o600)
    assert refused(read_token, str(path)) == f"{path} does not hold a token"
