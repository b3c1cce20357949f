"""Trimmed records are on the disk before they are gone, also when the one before was cut off half-way."""

import json
import os
from pathlib import Path

import pytest

from actors.stores.archive import archive


def seqs(path: Path) -> list[int]:
    lines: list[int] = []
    for line in path.read_bytes().splitlines():
        try:
            lines.append(json.loads(line)["record"]["seq"])
        except ValueError:
            continue
    return lines


def test_what_comes_after_half_a_line_is_on_lines_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    archive(path, "s", "log", [b'{"seq":1}', b'{"seq":2}'])
    os.truncate(path, path.stat().st_size - 5)
    archive(path, "s", "log", [b'{"seq":2}', b'{"seq":3}'])
    assert seqs(path) == [1, 2, 3]
    assert path.read_bytes().count(b"\n") == 4


def test_nothing_comes_between_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    for seq in (1, 2, 3):
        archive(path, "s", "log", [b'{"seq":%d}' % seq])
    assert seqs(path) == [1, 2, 3]
    assert path.read_bytes().count(b"\n") == 3


def test_the_records_are_synced_and_then_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "old.jsonl", list[tuple[str, int]]()

    def fsync(file: int) -> None:
        of = {path.stat().st_ino: "file", tmp_path.stat().st_ino: "folder"}[os.fstat(file).st_ino]
        synced.append((of, path.stat().st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    archive(path, "s", "log", [b'{"seq":1}'])
    size = path.stat().st_size
    assert size > 0
    assert synced == [("file", size), ("folder", size)]


def test_no_file_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def fsync(file: int) -> None:
        opened.append(file)
        if len(opened) == 2:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        archive(tmp_path / "old.jsonl", "s", "log", [b'{"seq":1}'])
    for file in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
