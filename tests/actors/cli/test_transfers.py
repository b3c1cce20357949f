"""`actors sessions export | import | backup`: what is taken out comes in as it was, and nothing is overwritten."""

import errno
import io
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.cli import main
from actors.stores.reading import Reader

Damage = Callable[[str, str], None]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["sessions", *argv])
    out, err = capsys.readouterr()
    return code, out, err


# ---- out and in


def test_what_is_exported_is_imported_as_it_was(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = str(tmp_path / "all.jsonl")
    code, _, err = run(capsys, "export", "--all", "-o", lines, "--store", store)
    records = Path(lines).read_bytes().count(b'{"type":')
    assert (code, err) == (0, f"exported 3 sessions, {records} records to {lines}\n")
    assert stat.S_IMODE(Path(lines).stat().st_mode) == 0o600
    other = str(tmp_path / "other.db")
    assert run(capsys, "import", lines, "--store", other)[:2] == (0, "imported alpha, beta, gamma\n")
    assert stat.S_IMODE(Path(other).stat().st_mode) == 0o600
    for argv in (["list"], ["show", "beta"], ["show", "alpha", "--json"]):
        assert run(capsys, *argv, "--store", other) == run(capsys, *argv, "--store", store)
    code, _, err = run(capsys, "import", lines, "--store", other)
    assert code == 2
    assert err.startswith(f"actors: {lines}: session 'alpha' ")
    assert err.endswith("; nothing was imported\n")
    assert run(capsys, "export", "--all", "-o", lines, "--store", store)[2] == (
        f"actors: {lines} exists already; it is not overwritten\n"
    )


def test_an_export_goes_through_a_pipe(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["sessions", "export", "alpha", "--store", store]) == 0
    out, _ = capfdbinary.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out)))
    assert main(["sessions", "import", "-", "--store", str(tmp_path / "other.db")]) == 0


@pytest.mark.parametrize(
    ("content", "begins"),
    [
        (b"", ": line 1 does not begin an exported session: "),
        (b'{"x', ": line 1 does not begin an exported session: "),
        (b'{"export":2,"session":"s","log_id":"l"}\n', ": the export has format 2; this version knows format 1"),
        (b'{"export":1,"session":"s","log_id":"l"}\n', ": the export of session 's' has no records"),
        (b'{"export":1,"session":"s","log_id":"l"}\nnonsense\n', ": line 2: "),
    ],
)
def test_a_broken_file_is_refused_by_its_line(
    content: bytes, begins: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    code, out, err = run(capsys, "import", str(tmp_path / "in.jsonl"), "--store", str(tmp_path / "other.db"))
    assert (code, out) == (2, "")
    assert err.startswith(f"actors: {tmp_path / 'in.jsonl'}{begins}")
    assert err.count("\n") == 1


def test_of_several_sessions_a_broken_line_is_named_and_nothing_is_imported(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "all.jsonl"
    other = tmp_path / "other.db"
    run(capsys, "export", "alpha", "gamma", "alpha", "-o", str(lines), "--store", store)
    content = lines.read_bytes().splitlines(keepends=True)
    lines.write_bytes(b"".join(content[:-1]) + b"nonsense\n")
    code, _, err = run(capsys, "import", str(lines), "--store", str(other))
    assert (code, err.startswith(f"actors: {lines}: line {len(content)}: ")) == (2, True)
    assert err.endswith("; nothing was imported\n")
    assert not other.exists()
    lines.write_bytes(b"".join([*content, *content]))
    assert run(capsys, "import", str(lines), "--store", str(other))[0] == 2  # the same session twice
    assert run(capsys, "list", "--store", str(other))[1] == "no sessions\n"


def test_an_export_that_fails_leaves_no_file(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(reader: object, session: str, file: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("actors.cli.transfers.export_session", full)
    out = tmp_path / "out.jsonl"
    code, _, err = run(capsys, "export", "alpha", "-o", str(out), "--store", store)
    assert (code, err) == (1, "actors: cannot write the output: No space left on device\n")
    assert not out.exists()


def test_a_backup_is_a_store_of_its_own_and_overwrites_nothing(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = str(tmp_path / "copy.db")
    assert run(capsys, "backup", copy, "--store", store) == (0, f"{store} is copied to {copy}\n", "")
    assert run(capsys, "list", "--store", copy) == run(capsys, "list", "--store", store)
    assert stat.S_IMODE(Path(copy).stat().st_mode) == 0o600
    assert run(capsys, "backup", copy, "--store", store)[0] == 2
    missing = str(tmp_path / "none" / "copy.db")
    assert run(capsys, "backup", missing, "--store", store)[2] == (
        f"actors: cannot write {missing}: No such file or directory\n"
    )


def test_an_export_of_all_leaves_out_what_is_damaged(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    damage(store, "alpha")
    out = str(tmp_path / "out.jsonl")
    code, _, err = run(capsys, "export", "--all", "-o", out, "--store", store)
    assert code == 1
    assert err.splitlines()[0] == (
        "actors: session 'alpha' is left out: record 2 of session 'alpha' is not what was written"
    )
    assert err.splitlines()[1].startswith("exported 2 sessions, ")
    assert run(capsys, "import", out, "--store", str(tmp_path / "other.db"))[1] == "imported beta, gamma\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (sqlite3.DatabaseError("bad page"), ["actors: session 'alpha' is left out: bad page",
                                             "actors: session 'beta' is left out: bad page",
                                             "actors: session 'gamma' is left out: bad page"]),
        (sqlite3.OperationalError("disk I/O error"), ["actors: store {}: the disk reported an error; check the disk, "
                                                      "then start again (disk I/O error)"]),
    ],
)  # fmt: skip
def test_pages_that_cannot_be_read_leave_out_their_session_and_a_disk_that_fails_ends_it_all(
    error: Exception, said: list[str], store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(reader: Reader, session: str, file: object) -> int:
        raise error

    monkeypatch.setattr("actors.cli.transfers.export_session", fail)
    code, _, err = run(capsys, "export", "--all", "--store", store)
    assert (code, err.splitlines()) == (1, [line.format(store) for line in said])
