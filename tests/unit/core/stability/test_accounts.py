"""When a message is stable: what follows from what, in the accounts and through whole members, across restarts and changes."""

from __future__ import annotations

from typing import Any

import pytest

from thence.core.member.codec import decode_record, encode_record
from thence.core.member.contract import Arrived, Restored, Submit, SubmitAll, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.reconfig.protocol import Hold, Prepare, Switch
from thence.core.stability.accounts import IN_ORDER, OURS, Accounts
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.core.wire.records import Record
from thence.errors import Busy, StorageError

MS = 1_000_000
ROW = (Domain("A", ("a", "r"), "vector"), Domain("B", ("r", "s"), "vector"), Domain("C", ("s", "c"), "matrix"))


def row(*, stability: bool = True, version: int = 1) -> Topology:
    """Three domains in a row: a, r, s, c."""
    return Topology("row", ROW, stability=stability, version=version)


class Run:
    """Members, what is on its way between them, and their disks; nothing moves by itself."""

    def __init__(self, topology: Topology, options: MemberOptions | None = None) -> None:
        self.topology = topology
        self.options = options or MemberOptions()
        self.members = {name: Member(name, topology, options) for name in topology.processes}
        self.records: dict[str, list[Record]] = {name: [] for name in self.members}
        self.snapshots: dict[str, bytes] = {}
        self.flying: list[tuple[str, str, Packet[Any]]] = []
        self.stable: dict[str, int] = dict.fromkeys(self.members, 0)
        self.now = 0

    def step(self, name: str, step_input: Any) -> None:
        ready = self.members[name].step(step_input, self.now)
        self.records[name] += [decode_record(encode_record(record)) for record in ready.persist]
        self.stable[name] = ready.stable or self.stable[name]
        self.flying += [(name, peer, packet) for peer, packet in ready.send]

    def settle(self, *down: str) -> None:
        """Carry what is on its way, and let time pass, until nothing happens any more; what is for those ``down`` is lost."""
        for _ in range(30):
            while self.flying:
                source, target, packet = self.flying.pop(0)
                if target not in down:
                    self.step(target, Arrived(source, packet))
            self.now += 250 * MS
            for name in self.members:
                if name not in down:
                    self.step(name, Timer())

    def restart(self, name: str) -> None:
        self.members[name] = Member(name, self.topology, self.options)
        self.step(name, Restored(self.snapshots.get(name), self.records[name], 0))

    def snapshot(self, name: str) -> None:
        self.snapshots[name], self.records[name] = self.members[name].snapshot(), []


def test_a_message_is_stable_when_the_last_recipient_has_it_and_not_before() -> None:
    run = Run(row())
    run.step("a", Submit(("c",), b"x"))
    run.settle("c")
    assert (run.stable["a"], run.members["a"].forwarder.unstable()) == (0, [1])
    assert run.members["a"].attachment.queued() == {"r": 1}, "it counts as queued, though r has had it for long"
    run.settle()
    assert (run.stable["a"], run.members["a"].forwarder.stable_upto, run.members["a"].forwarder.unstable()) == (1, 1, [])
    assert sum(sum(member.attachment.queued().values()) for member in run.members.values()) == 0


def test_what_has_no_other_recipient_is_stable_when_it_is_accepted() -> None:
    run = Run(row())
    run.step("a", Submit(("a",), b"x"))
    assert run.stable["a"] == 1


def test_stable_is_said_in_order() -> None:
    run = Run(row())
    run.step("a", Submit(("c",), b"far"))
    run.step("a", Submit(("r",), b"near"))
    run.settle("c")
    assert (run.stable["a"], run.members["a"].forwarder.unstable()) == (0, [1])
    run.settle()
    assert run.stable["a"] == 2


@pytest.mark.parametrize("name", ["a", "r", "s", "c"])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_forgets_nothing_that_is_not_stable(name: str, snapshot: bool) -> None:
    run = Run(row())
    for _ in range(3):
        run.step("a", Submit(None, b"x"))
    run.settle("c")
    if snapshot:
        run.snapshot(name)
    run.flying = []
    run.restart(name)
    assert run.members["a"].forwarder.unstable() == [1, 2, 3]
    run.settle("c")
    assert run.stable["a"] == 0
    run.settle()
    assert (run.stable["a"], run.members["a"].forwarder.unstable()) == (3, [])


def test_who_was_told_and_forgot_is_told_again() -> None:
    run = Run(row())
    run.step("a", Submit(("c",), b"x"))
    run.settle("c")
    run.snapshot("a")
    run.settle()
    assert run.stable["a"] == 1
    run.restart("a")
    assert run.members["a"].forwarder.unstable() == [1]
    run.settle()
    assert run.members["a"].forwarder.unstable() == []


def test_what_is_kept_pushes_back() -> None:
    run = Run(row(), MemberOptions(max_queued=3))
    for _ in range(3):
        run.step("a", Submit(("c",), b"x"))
        run.settle("c")
    with pytest.raises(Busy, match="the queue to 'r' in 'A' is full: 3 frames are not acknowledged; max_queued is 3"):
        run.step("a", Submit(("c",), b"x"))
    run.step("a", SubmitAll((Submit(("c",), b"what follows from a delivery"),)))
    run.settle()
    run.step("a", Submit(("c",), b"x"))


def test_a_fabric_changes_when_all_have_everything_and_goes_on_from_there() -> None:
    run = Run(row())
    run.step("a", Submit(("c",), b"x"))
    run.settle("c")
    after = row(version=2)
    for name in run.members:
        run.step(name, Hold(1, after))
    run.step("a", Submit(("c",), b"waits"))
    assert "not acknowledged" in run.members["s"].reconfigurer.standing().trouble
    run.settle()
    assert all(member.reconfigurer.standing().idle for member in run.members.values())
    for change in (Prepare(1), Switch(1)):
        for name in run.members:
            run.step(name, change)
    assert run.members["a"].forwarder.unstable() == [2]
    run.settle()
    assert run.stable["a"] == 2


def test_after_a_change_a_restart_knows_that_all_before_it_was_stable() -> None:
    run = Run(row(stability=False))
    run.step("a", Submit(("c",), b"x"))
    run.settle()
    assert (run.stable["a"], run.members["a"].forwarder.stable_upto) == (0, 0)
    for change in (Hold(1, row(version=2)), Prepare(1), Switch(1)):
        for name in run.members:
            run.step(name, change)
    assert run.members["a"].forwarder.stable_upto == 1
    run.step("a", Submit(("c",), b"y"))
    run.restart("a")
    assert (run.members["a"].forwarder.stable_upto, run.members["a"].forwarder.unstable()) == (1, [2])
    run.settle()
    assert run.stable["a"] == 2


def test_a_snapshot_of_a_fabric_without_it_is_refused() -> None:
    for before, after in ((False, True), (True, False)):
        snapshot = Member("a", row(stability=before)).snapshot()
        with pytest.raises(StorageError):
            Member("a", row(stability=after)).step(Restored(snapshot, (), 0), 0)


def test_the_option_is_a_part_of_the_fabric() -> None:
    assert parse(write(row())).stability
    assert not parse(write(row(stability=False))).stability
    assert row().fingerprint == parse(write(row())).fingerprint != row(stability=False).fingerprint


# --- the accounts --------------------------------------------------------------------------------------------------------------

FIRST = Envelope("a", 1, None, b"")


def frames(count: int) -> list[tuple[str, Frame[Any]]]:
    return [("somebody", Frame(None, FIRST)) for _ in range(count)]


def test_an_account_is_closed_when_nothing_is_pending_and_nothing_open() -> None:
    accounts = Accounts()
    accounts.open(FIRST, "d", IN_ORDER)
    accounts.owe(FIRST, ("d", "a", 7))
    assert accounts.balance() == []
    accounts.pushed(frames(2), "d")
    assert not accounts.is_open(FIRST, "d"), "what goes on has had its turn"
    accounts.became_stable(FIRST, "d")
    assert accounts.balance() == []
    accounts.became_stable(FIRST, "d")
    assert accounts.balance() == [("d", "a", 7)]
    assert len(accounts) == 0


def test_accounts_of_one_message_that_came_by_two_places_are_kept_apart() -> None:
    accounts = Accounts()
    for came_by in ("d", "link"):
        accounts.pushed(frames(1), came_by)
        accounts.owe(FIRST, (came_by, "a", 1))
    accounts.became_stable(FIRST, "link")
    assert accounts.balance() == [("link", "a", 1)]
    assert accounts.pending(FIRST, "d") == 1


def test_our_own_are_stable_without_a_hole() -> None:
    accounts = Accounts()
    for number in (1, 2):
        own = Envelope("me", number, None, b"")
        accounts.pushed([("x", Frame(None, own))], OURS)
        accounts.sent(own)
    accounts.became_stable(Envelope("me", 2, None, b""), OURS)
    assert (accounts.balance(), accounts.news(), accounts.unstable()) == ([], 0, [1])
    twin = accounts.fork()
    accounts.became_stable(Envelope("me", 1, None, b""), OURS)
    assert (accounts.balance(), accounts.news(), accounts.news()) == ([], 2, 0)
    assert (twin.balance(), twin.news(), twin.unstable()) == ([], 0, [1])
