"""The disk of the power cuts keeps what it has promised, and of the rest anything."""

from random import Random

from tests.faults.disk import SECTOR, Content, Disk, Truncate, Write


def survivors(content: Content, count: int = 500) -> set[bytes]:
    return {bytes(content.survive(Random(seed))) for seed in range(count)}


def test_what_is_synced_is_kept() -> None:
    content = Content(pending=[Write(0, b"abc"), Write(1, b"x"), Truncate(2), Write(3, b"d")])
    content.sync()
    assert survivors(content) == {b"ax\0d"}


def test_what_is_not_synced_is_kept_or_lost_or_torn_between_sectors() -> None:
    content = Content(bytearray(b"o" * 3 * SECTOR), [Write(SECTOR, b"n" * 2 * SECTOR)])
    old, new = b"o" * SECTOR, b"n" * SECTOR
    assert survivors(content) == {old + a + b for a in (old, new) for b in (old, new)}


def test_a_sector_is_as_one_write_or_another_has_left_it() -> None:
    content = Content(bytearray(b"...."), [Write(0, b"a"), Write(1, b"b"), Write(2, b"c")])
    assert survivors(content) == {b"....", b"a...", b"ab..", b"abc."}


def test_writes_reach_the_disk_in_any_order() -> None:
    content = Content(bytearray(2 * SECTOR), [Write(0, b"first"), Write(SECTOR, b"second")])
    found = {(data[:5] == b"first", data[SECTOR : SECTOR + 6] == b"second") for data in survivors(content)}
    assert found == {(False, False), (True, False), (False, True), (True, True)}


def test_a_file_may_be_longer_than_what_was_written_into_it() -> None:
    content = Content(bytearray(b"old"), [Write(3, b"new")])
    found = survivors(content)
    assert {b"old", b"oldnew", b"old\0\0\0"} <= found
    assert any(len(data) == 6 and data not in (b"oldnew", b"old\0\0\0") for data in found)
    assert all(data.startswith(b"old") for data in found)


def test_a_truncation_may_be_undone() -> None:
    assert survivors(Content(bytearray(b"abc"), [Truncate(1)])) >= {b"a", b"abc"}


def test_what_a_failed_sync_has_not_kept_no_later_sync_keeps() -> None:
    found: set[bytes] = set()
    for seed in range(50):
        content = Content(bytearray(b"--"), [Write(0, b"a")])
        content.fail_to_sync(Random(seed))
        content.pending.append(Write(1, b"b"))
        content.sync()
        found.add(bytes(content.synced))
    assert found == {b"-b", b"ab"}


def names(disk: Disk) -> set[tuple[str, ...]]:
    return {tuple(disk.survive(Random(seed))) for seed in range(100)}


def test_a_new_name_may_be_lost_until_the_folder_is_synced() -> None:
    disk = Disk()
    disk.open("a").sync()
    assert names(disk) == {(), ("a",)}
    disk.sync_names()
    assert names(disk) == {("a",)}


def test_a_deletion_may_be_undone_until_the_folder_is_synced() -> None:
    disk = Disk()
    disk.put("a", b"old")
    disk.delete("a")
    disk.open("a").pending.append(Write(0, b"new"))
    disk.open("a").sync()
    assert {tuple(disk.survive(Random(seed)).items()) for seed in range(100)} == {
        (), (("a", b"old"),), (("a", b"new"),),
    }  # fmt: skip
    disk.sync_names()
    assert disk.survive(Random(1)) == {"a": b"new"}
