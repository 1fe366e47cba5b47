"""What waits for a peer that is away goes to files and comes back, in order and once: a node without sockets, on files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.far_side import IN_MEMORY, WAY, WINDOW, FarSide, item, outgoing, send, small_files, started
from tests.unit.node.test_node import durable, killed
from thence.core.member.limits import MemberOptions
from thence.core.reconfig import retention
from thence.core.reconfig.protocol import Flush, Hold, Prepare, Switch
from thence.core.topology.toml import parse
from thence.core.wire.messages import MessageId
from thence.errors import StorageError, StoreFull
from thence.node.offline.inspection import examine, read_spilled
from thence.storage import files, journal
from thence.storage.bodies import read_body
from thence.storage.mailbox import Batch
from thence.storage.spill import WaitingFrame, list_spill, spill_path
from thence.storage.store import Store

MOST_IN_MEMORY = WINDOW + IN_MEMORY


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_files():
        yield


async def test_what_is_too_much_for_memory_is_in_files_and_comes_when_the_peer_does(tmp_path: Path) -> None:
    node, far = started(tmp_path), FarSide()
    await far.introduce(node)
    assert send(node, 1, 200) == 200
    await durable(node)
    assert node.member.attachment.in_memory <= MOST_IN_MEMORY
    assert outgoing(node).frames_by_peer() == {"s2": 201 - node.member.attachment.in_memory}
    assert outgoing(node).bytes_by_peer() == {"s2": sum(path.stat().st_size for path in list_spill(tmp_path).values())}
    far.meet(node)
    await far.take(node)
    assert far.messages == 200
    assert (outgoing(node).frames_by_peer(), outgoing(node).bytes, node.member.attachment.in_memory) == ({}, 0, 0)
    assert list_spill(tmp_path), "the last snapshot may need them"
    await node.driver.commits.compact()
    assert list_spill(tmp_path) == {}
    assert send(node, 201, 2) == 2
    await far.take(node)
    assert far.messages == 202, "and then everything is as it was"
    await node.close()


async def test_a_snapshot_names_files_and_holds_none_of_their_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_RETAINED", 2)  # Copies for the day on which a member is lost are in it, too.
    node = started(tmp_path)
    await FarSide().introduce(node)
    send(node, 1, 400)
    await durable(node)
    snapshot = node.driver.actions.snapshot()
    assert item(1) in snapshot
    assert item(399) in snapshot or item(400) in snapshot, "what was written last is in memory"
    assert not [number for number in range(100, 390) if item(number) in snapshot]
    assert {file.number for *_, named in journal.decode_snapshot(snapshot).spilled_frames for file in named} == set(
        list_spill(tmp_path)
    )
    await node.close()


@pytest.mark.parametrize("spill_after_bytes", [None, 1_000_000])
@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_a_node_that_comes_back_goes_on(tmp_path: Path, spill_after_bytes: int | None, how: str) -> None:
    node, far = started(tmp_path), FarSide()
    await far.introduce(node)
    send(node, 1, 60)
    await durable(node)
    await node.driver.commits.compact()
    send(node, 61, 60)
    await durable(node)
    far.meet(node)
    await far.take(node, packets=8)
    before = far.messages
    assert 0 < before < 120
    if how == "stopped":
        await node.close()
    else:
        killed(node)
    node = started(tmp_path, spill_after_bytes)
    assert send(node, 121, 5) == 5
    await durable(node)
    if spill_after_bytes is not None:
        assert node.member.attachment.in_memory <= MOST_IN_MEMORY + far.taken
    far.meet(node)
    await far.take(node)
    assert far.messages == 125
    await node.close()
    assert list_spill(tmp_path) == {}
    assert examine(tmp_path).damage == []


async def test_a_peer_that_comes_and_goes_gets_everything(tmp_path: Path) -> None:
    node, far, sent = started(tmp_path), FarSide(), 0
    await far.introduce(node)
    for turn in range(12):
        sent += send(node, sent + 1, 17)
        far.meet(node)
        await far.take(node, packets=turn % 5)
        far.part(node)
        sent += send(node, sent + 1, 13)
        await durable(node)
        assert node.member.attachment.in_memory <= MOST_IN_MEMORY + WINDOW
    far.meet(node)
    await far.take(node)
    assert far.messages == sent == 360
    await node.close()


async def test_a_full_disk_pushes_back_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.write_all

    def full(descriptor: int, data: bytes, offset: int, path: Path) -> None:
        if path.name.startswith("spill"):
            raise StoreFull(f"{path}: no space left")
        real(descriptor, data, offset, path)

    node, far = started(tmp_path, member=MemberOptions(max_queued=50)), FarSide()
    await far.introduce(node)
    sent = send(node, 1, 30)
    await durable(node)
    with monkeypatch.context() as filled:
        filled.setattr(files, "write_all", full)
        sent += send(node, sent + 1, 100)
        assert 50 <= sent < 130, "clients have to wait, as without files"
        assert node.member.attachment.in_memory == 50
        assert "no space left" in outgoing(node).full
        node.look_after_backlog()
        assert send(node, sent + 1, 1) == 0
    node.look_after_backlog()
    assert (outgoing(node).full, node.member.attachment.in_memory <= MOST_IN_MEMORY) == ("", True)
    sent += send(node, sent + 1, 100)
    await durable(node)
    far.meet(node)
    await far.take(node)
    assert far.messages == sent
    await node.close()


async def test_frames_take_a_part_of_what_may_be_spilled_and_leave_the_rest_to_messages(tmp_path: Path) -> None:
    node, far = started(tmp_path, max_store_bytes=80_000, member=MemberOptions(max_queued=50)), FarSide()
    await far.introduce(node)
    sent = 0
    while not outgoing(node).full:
        sent += send(node, sent + 1, 10)
        await durable(node)
    sent += send(node, sent + 1, 100)
    await durable(node)
    assert node.member.attachment.in_memory == 50
    assert outgoing(node).limit_bytes == 20_000
    assert "bytes of frames are spilled in" in outgoing(node).full
    assert outgoing(node).full.endswith("the limit is 20000")
    assert not node.directory.mailboxes.full
    assert node.backlog.spill is not None
    assert not node.backlog.spill.full
    far.meet(node)
    await far.take(node)
    assert far.messages == sent
    node.look_after_backlog()
    assert send(node, sent + 1, 1) == 1
    await node.close()


async def test_a_flipped_bit_is_named_and_stops_this_way_only_until_it_is_mended(tmp_path: Path) -> None:
    node, far = started(tmp_path), FarSide()
    await far.introduce(node)
    send(node, 1, 200)
    await durable(node)
    path = list(list_spill(tmp_path).values())[2]
    whole = path.read_bytes()
    spoiled = bytearray(whole)
    spoiled[len(spoiled) // 2] ^= 1
    path.write_bytes(spoiled)
    far.meet(node)
    await far.take(node)
    before = far.messages
    assert 0 < before < 200
    (trouble,) = outgoing(node).trouble_by_peer().values()
    assert trouble.startswith(f"the frames for s2 in D cannot be read: {path}, offset ")
    assert outgoing(node).frames_by_peer()["s2"] > 0, "nothing is left out"
    assert send(node, 201, 3) == 3, "others are served"
    node.look_after_backlog()
    await far.take(node)
    assert far.messages == before
    path.write_bytes(whole)
    node.look_after_backlog()
    await far.take(node)
    assert (far.messages, outgoing(node).trouble_by_peer()) == (203, {})
    await node.close()


async def test_a_store_with_frames_in_files_can_be_looked_into(tmp_path: Path) -> None:
    node = started(tmp_path)
    await FarSide().introduce(node)
    send(node, 1, 100)
    await durable(node)
    await node.close()
    report = examine(tmp_path)
    assert report.damage == []
    assert {(row.kind, row.owner) for row in report.spilled} == {("frame", "s2 in D")}
    trouble: list[str] = []
    found = list(read_spilled(tmp_path, trouble))
    numbers = [number for _, number, _ in found]
    assert (numbers, trouble) == (list(range(report.spilled[0].first, report.spilled[-1].last + 1)), [])
    assert all(isinstance(entry, WaitingFrame) for _, _, entry in found)
    lost = spill_path(tmp_path, min(list_spill(tmp_path)))
    lost.unlink()
    (damage,) = examine(tmp_path).damage
    assert damage.startswith(f"{lost} is missing: frames ")
    assert damage.endswith("for 's2 in D' were in it")
    with pytest.raises(StorageError, match=f"{lost.name}, offset 0: No such file"):
        started(tmp_path)


async def test_a_snapshot_that_does_not_name_its_files_is_refused(tmp_path: Path) -> None:
    node = started(tmp_path)
    await FarSide().introduce(node)
    send(node, 1, 100)
    await durable(node)
    snapshot = journal.decode_snapshot(node.driver.actions.snapshot())
    place, peer, named = snapshot.spilled_frames[0]
    for fewer in ([], [(place, peer, named[1:])], [(place, peer, named[:-1])]):
        changed = msgspec.structs.replace(snapshot, spilled_frames=fewer)
        node.driver.store.compact(journal.encode_snapshot(changed), node.driver.store.appended)
        killed(node)
        with pytest.raises(StorageError, match=r"frames \d+ to \d+ for s2 in D are in files, and does not name them"):
            started(tmp_path)
        node.driver.store = Store.open(tmp_path, "two/s1")
    killed(node)


async def test_whoever_has_to_hand_over_messages_has_those_in_files(tmp_path: Path) -> None:
    node = started(tmp_path)
    await FarSide().introduce(node)
    send(node, 1, 100)
    await durable(node)
    bodies = [read_body(envelope.body, "s1") for envelope in node.backlog.messages()]
    first, last = node.member.spill.elsewhere(WAY) or (0, 0)
    # The first frame says that there is somebody called ann.
    assert [bytes(body.messages) for body in bodies if isinstance(body, Batch)] == [
        item(number - 1) for number in range(first, last + 1)
    ]
    await node.close()


async def test_what_waits_for_a_server_that_is_lost_is_handed_to_others_or_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_RETAINED", 2)
    following = parse('name = "two"\nversion = 2\n[domains.D]\nmembers = ["s1"]\nordering = "vector"\n')
    node = started(tmp_path)
    await FarSide().introduce(node)
    send(node, 1, 100, to=None)
    send(node, 101, 20)  # For the lost alone: nobody is told of these.
    await durable(node)
    await node.driver.commits.compact()
    for change in (Hold(1, following, ("s2",)), Prepare(1)):
        node.driver.step(change)
    report = node.member.survivor.report(node.backlog.messages())
    assert [copy.number for copy in sorted(report.copies, key=lambda copy: copy.number)] == list(range(1, 102))
    assert report.queued == {"s2": 121}
    (one,) = node.member.survivor.give((MessageId("s1", 51),), node.backlog.messages())
    assert item(50) in one.body
    for last_change in (Flush(1, "list", 0, True, ()), Switch(1)):
        node.driver.step(last_change)
    await durable(node)
    assert node.member.spill.used() == []
    assert list_spill(tmp_path), "a kill now finds the snapshot that names them"
    killed(node)
    node = started(tmp_path)
    assert (node.topology.version, outgoing(node).frames_by_peer()) == (2, {})
    await node.driver.commits.compact()
    assert set(list_spill(tmp_path)) == {file.number for file in node.directory.mailboxes.spilled()}, (
        "what is for clients here stays"
    )
    await node.close()


async def test_a_write_that_fails_for_another_reason_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.write_all

    def broken(descriptor: int, data: bytes, offset: int, path: Path) -> None:
        if path.name.startswith("spill"):
            raise StorageError(f"{path}: input/output error")
        real(descriptor, data, offset, path)

    node = started(tmp_path)
    failed: list[Exception] = []
    node.hooks.on_failed = failed.append
    await FarSide().introduce(node)
    monkeypatch.setattr(files, "write_all", broken)
    assert send(node, 1, 100) < 100
    assert [str(error).partition(": ")[2] for error in failed] == ["input/output error"]
    killed(node)
