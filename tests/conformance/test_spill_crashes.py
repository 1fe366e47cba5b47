"""A crash between any two file operations of a node that spills, and in the middle of any write: nothing is lost or doubled.

One suite for both users of the spill queue (``storage.spill``): mailboxes with messages, and ways to peers with frames. The
operations are the real ones, on real files, and so is the node; ``test_store_crashes.py`` says how a crash can leave them. What
a peer has taken before a crash it has taken: a node that comes back must neither lack what follows nor send it something else.
"""

from __future__ import annotations

import asyncio
import shutil
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import far_side
from tests.support.crashes.spills import delete_too_soon, forget_to_sync, kept_in, small_blocks
from tests.support.far_side import WAY, FarSide, outgoing, send, small_files
from tests.support.stores import in_one_thread, without_waiting
from tests.unit.node.test_node import PATIENCE_S, alone, durable, joined
from tests.unit.storage.test_store_crashes import CrashingDisk, Image
from thence.errors import StorageError
from thence.node.node import Node
from thence.node.offline.inspection import examine
from thence.node.options import NodeOptions
from thence.storage import spill as spill_module
from thence.storage import store as store_module
from thence.storage.mailbox import Batch


class SpillUser(ABC):
    """Something that spills: what it does, what others know of it, and what must be so after a crash."""

    @abstractmethod
    def small(self) -> AbstractContextManager[None]:
        """Spill soon."""

    @abstractmethod
    def known(self) -> Hashable:
        """Return what others know by now: it must be so after a crash."""

    @abstractmethod
    async def work(self, folder: Path) -> None:
        """Let files be begun, appended to, read to their end and deleted, and the node start again."""

    @abstractmethod
    async def check(self, folder: Path, known: Hashable, what: str) -> None:
        """Start a node where a crash left the folder, look, go on, stop, and look again."""


class Known(NamedTuple):
    """What somebody outside knows of a mailbox."""

    put: int
    acknowledged: int


CLIENTS = ("ann", "bob")


def item(client: str, number: int) -> bytes:
    return f"{client} {number}".encode() + bytes(number % 40)


class MailboxUser(SpillUser):
    """Mailboxes of two clients."""

    def __init__(self) -> None:
        self.mailboxes = dict.fromkeys(CLIENTS, Known(0, 0))

    def small(self) -> AbstractContextManager[None]:
        return small_blocks()

    def known(self) -> Hashable:
        return tuple(self.mailboxes.items())

    @staticmethod
    def started(folder: Path) -> Node:
        return Node(alone(), "s1", NodeOptions(data=folder, spill_after_bytes=1_000_000))

    async def work(self, folder: Path) -> None:
        node = self.started(folder)
        for name in CLIENTS:
            await joined(node, name)

        async def put(client: str, count: int) -> None:
            for _ in range(count):
                number = self.mailboxes[client].put + 1
                sent = node.directory.state.mailboxes["ann"].sent
                node.intake.submit(Batch("ann", sent + 1, 1, (client,), None, item(client, number)))
                await durable(node)
                self.mailboxes[client] = self.mailboxes[client]._replace(put=number)

        async def acknowledge(client: str, upto: int) -> None:
            node.acknowledgements.acknowledge(client, upto)
            await durable(node)
            self.mailboxes[client] = self.mailboxes[client]._replace(acknowledged=upto)

        await put("bob", 14)
        await node.driver.commits.compact()
        await put("bob", 6)
        await put("ann", 9)
        await acknowledge("bob", 12)
        await node.driver.commits.compact()
        await acknowledge("bob", 20)
        await put("ann", 3)
        await node.driver.commits.compact()  # What bob is done with goes.
        await put("bob", 10)
        await node.close()
        node = self.started(folder)
        await put("bob", 9)
        await acknowledge("ann", 11)
        await acknowledge("bob", 33)
        await node.driver.commits.compact()
        await put("bob", 4)
        await node.close()
        assert self.mailboxes == {"ann": Known(12, 11), "bob": Known(43, 33)}

    async def check(self, folder: Path, known: Hashable, what: str) -> None:
        assert isinstance(known, tuple)
        mailboxes: dict[str, Known] = dict(known)
        node = self.started(folder)
        put: dict[str, int] = {}
        for client in CLIENTS:
            mailbox = node.directory.state.mailboxes.get(client)
            if mailbox is None:
                assert mailboxes[client].put == 0, what
                return await node.close()
            assert mailbox.position >= mailboxes[client].put, what
            assert mailbox.acknowledged >= mailboxes[client].acknowledged, what
            put[client] = mailbox.position
        for client in CLIENTS:
            for _ in range(6):
                put[client] += 1
                sent = node.directory.state.mailboxes["ann"].sent
                node.intake.submit(Batch("ann", sent + 1, 1, (client,), None, item(client, put[client])))
        await durable(node)
        for again in range(2):
            for client in CLIENTS:
                mailbox = node.directory.state.mailboxes[client]
                kept = [(at, bytes(batch.messages)) for at, batch in kept_in(mailbox, node.backlog.spill, client)]
                assert mailbox.front <= mailbox.acknowledged + 1, what
                assert kept == [(at, item(client, at)) for at in range(mailbox.front, put[client] + 1)], what
            await node.close()
            assert examine(folder).damage == [], what
            if not again:
                node = self.started(folder)
        return None


class Exchanged(NamedTuple):
    """What others know of a way to a peer."""

    sent: int
    """How many messages were accepted."""
    taken: int
    """How many frames the peer has,"""
    messages: int
    """and how many messages are in them."""


class FrameUser(SpillUser):
    """Frames for a peer that is away, and back, and away."""

    def __init__(self) -> None:
        self.far = FarSide()
        self.sent = 0

    def small(self) -> AbstractContextManager[None]:
        return small_files()

    def known(self) -> Hashable:
        return Exchanged(self.sent, self.far.taken, self.far.messages)

    async def work(self, folder: Path) -> None:
        node, far = far_side.started(folder), self.far
        await far.introduce(node)

        async def sending(count: int) -> None:
            for number in range(self.sent + 1, self.sent + count + 1):
                assert send(node, number, 1) == 1
                await durable(node)
                self.sent = number

        await sending(18)
        await node.driver.commits.compact()
        await sending(8)
        far.meet(node)
        await far.take(node, packets=5)
        await node.driver.commits.compact()
        await far.take(node, packets=5)
        far.part(node)
        await sending(9)
        await node.close()
        node = far_side.started(folder)
        await sending(4)
        far.meet(node)
        await far.take(node)
        await node.driver.commits.compact()  # What the peer has goes.
        far.part(node)
        await sending(14)
        await node.driver.commits.compact()
        await sending(3)
        far.meet(node)
        await far.take(node, packets=3)
        await node.close()
        assert self.sent == 56

    async def check(self, folder: Path, known: Hashable, what: str) -> None:
        assert isinstance(known, Exchanged)
        node = far_side.started(folder)
        if node.directory.home("bob") is None:
            assert known.sent == 0, what
            return await node.close()
        sent = node.directory.state.mailboxes["ann"].sent
        assert sent >= known.sent, what
        far = FarSide(known.taken, known.messages)
        for _ in range(2):
            sent += send(node, sent + 1, 6)
            far.meet(node)
            await far.take(node)
            assert far.messages == sent, what
            assert (node.member.spill.elsewhere(WAY), outgoing(node).files()) == (None, []), what
            far.part(node)
            sent += send(node, sent + 1, 12)
            await durable(node)
            await node.close()
            assert examine(folder).damage == [], what
            node = far_side.started(folder)
        return await node.close()


class Watched(CrashingDisk):
    """Keeps with every point of a crash what was known then."""

    def __init__(self, folder: Path, user: SpillUser) -> None:
        super().__init__(folder)
        self.user = user
        self.moments: list[tuple[str, Hashable, Image]] = []

    def notice(self, what: str) -> None:
        super().notice(what)
        self.moments += [(when, self.user.known(), image) for when, _, image in self.points]
        self.points.clear()


@pytest.fixture(params=[MailboxUser, FrameUser], ids=["mailboxes", "frames"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A folder of its own; files and segments are small, and much spills."""
    monkeypatch.setattr(spill_module, "SPILL_FILE_BYTES", 400)
    monkeypatch.setattr(store_module, "MAX_SEGMENT_BYTES", 2_000)
    folder = tmp_path / "store"
    folder.mkdir()
    user: SpillUser = request.param()
    with user.small():
        yield Watched(folder, user)


def crash_everywhere(disk: Watched, left: Path) -> int:
    """Do the work, and check every way in which a crash could leave the folder; return how many there are."""
    with disk.watching():
        asyncio.run(asyncio.wait_for(disk.user.work(disk.folder), PATIENCE_S))
    with without_waiting(), in_one_thread():
        return asyncio.run(check_all(left, disk))


def lay_out(folder: Path, image: Image) -> None:
    folder.mkdir()
    for name, content in image.items():
        (folder / name).write_bytes(content)


async def check_all(left: Path, disk: Watched) -> int:
    seen: set[Hashable] = set()
    for what, known, image in disk.moments:
        same = (tuple(sorted(image.items())), known)
        if same not in seen:
            seen.add(same)
            lay_out(left, image)
            await asyncio.wait_for(disk.user.check(left, known, what), PATIENCE_S)
            shutil.rmtree(left)
    return len(seen)


def test_a_crash_at_any_point_loses_doubles_and_moves_nothing(disk: Watched, tmp_path: Path) -> None:
    assert crash_everywhere(disk, tmp_path / "left") > 300
    spilling = {what.split(", before")[0] for what, _, image in disk.moments if any("spill" in name for name in image)}
    assert spilling == {"killed", "power", "power, names at once"}


def test_a_file_that_is_not_synced_before_the_snapshot_is_found(
    disk: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_to_sync(monkeypatch)
    with pytest.raises(StorageError, match=r"spill-\d+\.log, offset 0"):
        crash_everywhere(disk, tmp_path / "left")


def test_a_file_that_is_deleted_before_the_snapshot_is_found(
    disk: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_too_soon(monkeypatch)
    with pytest.raises(StorageError, match=r"spill-\d+\.log, offset 0: No such file"):
        crash_everywhere(disk, tmp_path / "left")
