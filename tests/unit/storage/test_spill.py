"""Messages that are too many for memory: what is written, read, kept and let go, and what is said of damage and of full disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashes.spills import kept_in, small_blocks
from tests.support.stores import IDENTITY, without_waiting
from tests.unit.node.directory.test_directory import told
from thence.core.wire.messages import Envelope
from thence.errors import Busy, ConfigError, StorageError
from thence.node.directory.directory import Directory
from thence.storage import mailbox as mailbox_module
from thence.storage import spill as spill_module
from thence.storage.bodies import Joined, Left, write_body
from thence.storage.mailbox import Batch, Mailbox, MailboxRoom
from thence.storage.mailbox_spill import MailboxReader
from thence.storage.spill import Spill, list_spill, spill_path, sync_files

ROOM = MailboxRoom(4, 1_000)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_blocks(), without_waiting():
        yield


class Home:
    """A directory whose mailboxes spill behind four messages, two batches at a time."""

    def __init__(
        self, folder: Path, *, limit_bytes: int | None = None, room: MailboxRoom | None = ROOM, snapshot: bytes = b""
    ) -> None:
        self.folder = folder
        self.spill = Spill(folder, IDENTITY, limit_bytes)
        self.directory = Directory("s1", ("s1",), spill=self.spill, spill_beyond=room)
        if snapshot:
            self.directory.restore(snapshot)
        else:
            for client in ("ann", "bob"):
                told(self.directory, Joined(client, "s1", temporary=False))
        self.directory.mailboxes.here = {"ann", "bob"}
        self.spill.restore(self.directory.mailboxes.spilled())

    def put(self, client: str, *bodies: bytes, count: int = 1) -> None:
        for body in bodies:
            self.directory.deliver(Envelope("s9", 1, None, write_body(Batch("x", 1, count, (client,), None, body))))

    def mailbox(self, client: str = "ann") -> Mailbox:
        return self.directory.state.mailboxes[client]

    def kept(self, client: str = "ann") -> list[bytes]:
        return [bytes(batch.messages) for _, batch in kept_in(self.mailbox(client), self.spill, client)]

    def snapshot(self) -> bytes:
        """Return a snapshot, after what the node does before one."""
        sync_files(self.spill.take_unsynced())
        return self.directory.snapshot()

    def again(self, snapshot: bytes, **options: Any) -> Home:
        return Home(self.folder, snapshot=snapshot, **options)


def bodies(first: int, last: int) -> list[bytes]:
    return [b"letter %d" % number for number in range(first, last + 1)]


def test_what_is_too_much_for_memory_is_in_files_and_comes_in_order(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    mailbox = home.mailbox()
    assert (sorted(mailbox.waiting), sorted(mailbox.unwritten)) == ([1, 2, 3, 4], [21])
    assert (mailbox.position, mailbox.spilled_messages, len(list_spill(tmp_path))) == (21, 16, 1)
    assert home.kept() == bodies(1, 21)
    assert mailbox.bytes == sum(map(len, bodies(1, 21)))


def test_of_what_waits_for_somebody_who_is_away_less_than_a_block_is_in_memory(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.directory.mailboxes.here.clear()
    for number in range(1, 22):
        home.put("ann", *bodies(number, number))
        mailbox = home.mailbox()
        assert len(mailbox.waiting) + len(mailbox.unwritten) <= (4 if number <= 4 else 1)
        assert (home.kept(), mailbox.front) == (bodies(1, number), 1)
    home.directory.mailboxes.acknowledge("ann", 20)
    assert (home.kept(), home.mailbox().bytes, home.spill.done) == (bodies(21, 21), len(b"letter 21"), 1)


def test_who_leaves_with_messages_in_memory_before_files_keeps_their_order(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 11))
    home.directory.mailboxes.here.clear()
    home.put("ann", *bodies(12, 31))
    mailbox = home.mailbox()
    assert (sorted(mailbox.waiting), sorted(mailbox.unwritten), home.kept()) == ([1, 2, 3, 4], [31], bodies(1, 31))


def test_a_mailbox_with_room_writes_no_files(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for number in range(1, 50):
        home.put("ann", *bodies(number, number))
        home.directory.mailboxes.acknowledge("ann", number - 2)
    assert list_spill(tmp_path) == {}
    assert home.kept() == bodies(48, 49)


def test_a_mailbox_is_in_memory_again_when_its_files_are_done_with(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    home.directory.mailboxes.acknowledge("ann", 13)
    assert (home.mailbox().front, home.spill.done) == (5, 0), "a file is done with as a whole"
    home.directory.mailboxes.acknowledge("ann", 20)
    mailbox = home.mailbox()
    assert (mailbox.front, list(mailbox.waiting), mailbox.spilling, mailbox.bytes) == (21, [21], False, len(b"letter 21"))
    assert (home.spill.done, len(list_spill(tmp_path))) == (1, 1), "the last snapshot may still need it"
    home.spill.delete_done(home.spill.done)
    assert (list_spill(tmp_path), home.spill.bytes) == ({}, 0)
    home.put("ann", *bodies(22, 23))
    assert home.kept() == bodies(21, 23)


def test_who_has_read_the_files_is_served_from_memory_though_messages_keep_coming(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 20))
    written = home.spill.bytes
    for number in range(21, 61):  # Two behind the end, as somebody is who is there.
        home.put("ann", *bodies(number, number))
        home.directory.mailboxes.acknowledge("ann", number - 2)
    assert home.spill.bytes == written, "nothing more was written"
    assert not home.mailbox().spilling


def test_batches_of_several_messages_are_not_cut(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 9), count=3)
    mailbox = home.mailbox()
    assert [at for at, _ in kept_in(mailbox, home.spill, "ann")] == list(range(1, 28, 3))
    reader = MailboxReader(home.spill, "ann")
    assert reader.behind(mailbox, 14)[0] == 13
    assert reader.behind(mailbox, 15)[0] == 16
    assert MailboxReader(home.spill, "ann").at(mailbox, mailbox.front, done=18)[0] <= 19, (
        "no message behind what is done with is left out"
    )


def test_a_receiver_that_has_done_with_much_does_not_read_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 200))
    home.directory.mailboxes.acknowledge("ann", 150)
    read: list[int] = []
    real = spill_module.read_block

    def noting(descriptor: int, file: Any, offset: int, *others: Any) -> Any:
        read.append(offset)
        return real(descriptor, file, offset, *others)

    monkeypatch.setattr(spill_module, "read_block", noting)
    first, batch = MailboxReader(home.spill, "ann").behind(home.mailbox(), 150)
    assert (first, bytes(batch.messages)) == (151, b"letter 151")
    assert len(read) == 1


def test_a_snapshot_names_files_and_has_no_messages_of_them(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    small = len(home.snapshot())
    home.put("ann", *bodies(22, 2_001))
    snapshot = home.snapshot()
    assert len(snapshot) < small + 50
    again = home.again(snapshot)
    assert again.kept() == bodies(1, 2_001)
    again.put("ann", *bodies(2_002, 2_020))
    assert again.kept() == bodies(1, 2_020)
    assert len(list_spill(tmp_path)) == 2, "a file is only appended to by the process that began it"
    assert again.spill.bytes == sum(path.stat().st_size for path in list_spill(tmp_path).values())


def test_what_was_written_behind_a_snapshot_is_written_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 11))
    snapshot = home.snapshot()
    home.put("ann", *bodies(12, 40))
    home.put("bob", *bodies(1, 40))
    again = home.again(snapshot)
    assert (again.kept(), again.kept("bob")) == (bodies(1, 11), [])
    assert [path.stat().st_size for path in list_spill(tmp_path).values()] == [again.mailbox().spilled[0].end]
    again.put("ann", *bodies(12, 40))
    assert again.kept() == bodies(1, 40)


def test_what_waited_for_somebody_who_is_gone_is_let_go(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    told(home.directory, Left("ann", "s1"))
    assert (home.spill.done, home.directory.mailboxes.spilled()) == (1, [])


def test_files_are_of_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_module, "SPILL_FILE_BYTES", 500)
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 300))
    assert len(list_spill(tmp_path)) > 5
    assert max(path.stat().st_size for path in list_spill(tmp_path).values()) < 700
    assert home.kept() == bodies(1, 300)
    home.directory.mailboxes.acknowledge("ann", 150)
    assert 0 < home.spill.done < len(list_spill(tmp_path))
    assert home.kept()[-1:] == bodies(300, 300)


# --- limits ------------------------------------------------------------------------------------------------------------


def test_a_limit_closes_the_mailbox_and_what_comes_late_stays_in_memory(tmp_path: Path) -> None:
    home = Home(tmp_path, limit_bytes=4_000)
    mailboxes, number = home.directory.mailboxes, 0
    while "ann" not in mailboxes.closed:
        number += 1
        home.put("ann", *bodies(number, number))
    assert "the mailbox of 'ann' is full" in mailboxes.why_closed("ann")
    assert home.kept() == bodies(1, number)
    home.put("ann", *bodies(number + 1, 3 * number))
    assert f"bytes are spilled in {tmp_path}; the limit is 4000" in mailboxes.why_closed("ann")
    assert home.spill.bytes < 4_300
    assert home.kept() == bodies(1, 3 * number)
    mailboxes.acknowledge("ann", 3 * number)
    assert home.spill.release_due, "a snapshot makes room"
    home.spill.delete_done(home.spill.done)
    mailboxes.look_for_room()
    assert (mailboxes.full, list(mailboxes.closed)) == ("", [])


@pytest.mark.parametrize("how", ["by what came", "by a writer here", "before a restart"])
def test_what_comes_late_goes_to_files_however_its_mailbox_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(mailbox_module, "MIN_BATCH_BYTES", 100)
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 10_000)
    home = Home(tmp_path, room=None)
    home.put("ann", *bodies(1, 80))
    number = 80
    if how == "by a writer here":
        with pytest.raises(Busy, match="more than its part"):
            home.directory.mailboxes.reserve(Batch("x", 1, 1, ("ann",), None, b"letter"))
    else:
        number += 1
        home.put("ann", *bodies(81, 81))
    assert list(home.directory.mailboxes.closed) == ["ann"]
    if how == "before a restart":
        home = home.again(home.snapshot(), room=None)
    home.put("ann", *bodies(number + 1, 300))
    mailboxes = home.directory.mailboxes
    assert (mailboxes.full, home.mailbox().spilled_messages > 200, home.kept()) == ("", True, bodies(1, 300))
    assert mailboxes.closed.late < mailboxes.most_late_bytes


def test_a_full_disk_loses_nothing_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 11))
    real = os.pwrite

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    home.put("ann", *bodies(12, 21))
    assert "No space left on device" in home.directory.mailboxes.why_closed("ann")
    home.directory.mailboxes.look_for_room()
    assert (list(home.directory.mailboxes.closed), home.kept()) == (["ann"], bodies(1, 21))
    monkeypatch.setattr(os, "pwrite", real)
    home.directory.mailboxes.look_for_room()
    assert (list(home.directory.mailboxes.closed), home.kept(), sorted(home.mailbox().unwritten)) == ([], bodies(1, 21), [21])


def test_without_spilling_files_of_before_are_read_to_their_end(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    again = home.again(home.snapshot(), room=None)
    again.put("ann", *bodies(22, 60))
    assert again.spill.bytes == home.spill.bytes
    assert again.kept() == bodies(1, 60)
    again.directory.mailboxes.acknowledge("ann", 20)
    assert (again.spill.done, again.mailbox().spilling, again.kept()) == (1, False, bodies(21, 60))


# --- damage ------------------------------------------------------------------------------------------------------------


def damaged(tmp_path: Path) -> tuple[Home, Path, bytes]:
    """Return a home with 40 messages for ann, the file they are in, and a snapshot."""
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 40))
    snapshot = home.snapshot()
    (path,) = list_spill(tmp_path).values()
    return home, path, snapshot


def test_a_block_that_is_damaged_is_named_when_somebody_gets_to_it(tmp_path: Path) -> None:
    home, path, snapshot = damaged(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = home.again(snapshot)
    seen: list[bytes] = []
    with pytest.raises(StorageError, match=rf"{path}, offset \d+: .*`thence store verify`"):
        seen.extend(bytes(batch.messages) for _, batch in kept_in(again.mailbox(), again.spill, "ann"))
    assert seen == bodies(1, len(seen)), "what is before the damage is handed over"
    assert 4 < len(seen) < 38


@pytest.mark.parametrize("size", [0, 20, 200])
def test_a_file_that_is_cut_short_is_noticed_at_the_start(tmp_path: Path, size: int) -> None:
    home, path, snapshot = damaged(tmp_path)
    os.truncate(path, size)
    with pytest.raises(StorageError, match=rf"{path}, offset {size if size > 100 else 0}: "):
        home.again(snapshot)


def test_a_file_that_is_missing_is_noticed_at_the_start(tmp_path: Path) -> None:
    home, path, snapshot = damaged(tmp_path)
    path.unlink()
    with pytest.raises(StorageError, match=f"{path}, offset 0: No such file or directory"):
        home.again(snapshot)


def test_a_file_of_another_store_or_mailbox_is_noticed(tmp_path: Path) -> None:
    home, path, snapshot = damaged(tmp_path)
    other = Home(tmp_path)
    other.put("bob", *bodies(1, 40))
    (theirs,) = list_spill(tmp_path).values()
    theirs.rename(path)
    with pytest.raises(StorageError, match="this is another file than the one that the snapshot names"):
        home.again(snapshot)
    home.spill.identity = "village/s1"
    home.put("bob", *bodies(1, 40))
    number = home.mailbox("bob").spilled[0].number
    with pytest.raises(ConfigError, match="the store of 'village/s1', not of 'city/s1'"):
        spill_module.check_file(tmp_path, home.mailbox("bob").spilled[0], IDENTITY)
    mailbox = home.mailbox("bob")
    with pytest.raises(StorageError, match="message 5 for 'ann' should be here, and message 5 for 'bob' is"):
        MailboxReader(home.spill, "ann").at(mailbox, 5)
    assert spill_path(tmp_path, number).exists()


def test_messages_in_files_of_a_store_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    home, _, _ = damaged(tmp_path)
    with pytest.raises(StorageError, match="in file 1 of a store that is not there"):
        MailboxReader(None, "ann").at(home.mailbox(), 5)


def test_a_disk_that_does_not_give_a_block_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    (path,) = list_spill(tmp_path).values()

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", broken)
        with pytest.raises(
            StorageError, match=rf"at offset \d+ of {path} failed: Input/output error\. The disk does not work: look"
        ):
            home.kept()
    assert home.kept() == bodies(1, 21)


def test_what_is_set_aside_again_stays_in_its_order(tmp_path: Path) -> None:
    """What was set aside and not written is older than what has come since; written the other way round, it could not be read."""
    home = Home(tmp_path, room=None)
    home.put("ann", *bodies(1, 2))
    mailbox = home.mailbox()
    mailbox.set_aside()
    home.put("ann", *bodies(3, 4))
    mailbox.set_aside()
    assert list(mailbox.unwritten) == [1, 2, 3, 4]
