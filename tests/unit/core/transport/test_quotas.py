"""Quotas: a peer that is away stops what goes by way of it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from thence.core.member import admission
from thence.core.member.contract import Arrived, Connected, Ready, Restored, Submit, SubmitAll
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.toml import parse
from thence.core.transport.quotas import Limit
from thence.core.wire.messages import Packet
from thence.errors import Busy

TRIANGLE = 'name = "f"\npromise = "fifo"\ndomains.A = { members = ["a", "b", "dead"], ordering = "%s" }\n'
"""Three who all know each other; one of them never answers."""
BRIDGE = 'name = "f"\ndomains.A.members = ["a", "r", "b"]\ndomains.D.members = ["r", "d", "dead"]\n'
"""What ``a`` and ``b`` have for ``d`` and ``dead`` goes through ``r``."""
SMALL = MemberOptions(max_queued=40)
BODY = bytes(1_000)


def sends(members: dict[str, Member], sender: str, to: tuple[str, ...] | None, body: bytes = b"") -> bool:
    """Let one send, and those who are there answer; return whether it was taken."""
    try:
        settle(members, sender, members[sender].step(Submit(to, body), 0))
    except Busy:
        return False
    return True


def settle(members: dict[str, Member], source: str, ready: Ready) -> None:
    """Carry packets to those who are there until nobody says anything."""
    waiting: list[tuple[str, str, Packet[Any]]] = [(source, peer, packet) for peer, packet in ready.send]
    while waiting:
        sender, peer, packet = waiting.pop(0)
        if peer in members:
            waiting += [(peer, to, answer) for to, answer in members[peer].step(Arrived(sender, packet), 0).send]


def without_the_dead(text: str, options: MemberOptions) -> dict[str, Member]:
    topology = parse(text)
    return {name: Member(name, topology, options) for name in topology.processes if name != "dead"}


def filled(members: dict[str, Member], sender: str, to: tuple[str, ...] | None, body: bytes = b"") -> int:
    """Send until there is no room; return how many were taken."""
    for count in range(1_000):
        if not sends(members, sender, to, body):
            return count
    raise AssertionError("there is room for ever")


@pytest.mark.parametrize("ordering", ["matrix", "fifo", "vector"])
@pytest.mark.parametrize("options", [SMALL, MemberOptions(max_queued_bytes=40_000)], ids=["frames", "bytes"])
def test_a_peer_that_is_away_stops_what_is_for_it_and_nothing_else(ordering: str, options: MemberOptions) -> None:
    members = without_the_dead(TRIANGLE % ordering, options)
    taken = filled(members, "a", ("dead",), BODY)
    assert 20 <= taken <= 40
    assert sends(members, "a", ("b",), BODY), "there is room in the queue to b"
    assert sends(members, "a", ("a",), BODY), "it leaves nobody's queue longer"
    for to in (None, ("b", "dead")):
        with pytest.raises(Busy, match=r"the queue to 'dead' in 'A' is full: .* max_queued"):
            members["a"].step(Submit(to, BODY), 0)
    for _ in range(100):
        assert sends(members, "a", ("b",)), "for ever"


def test_each_queue_keeps_its_share_and_all_together_keep_the_limit() -> None:
    text = 'name = "f"\ndomains.A.members = ["a", "b", "c", "d", "e"]\n'
    a = Member("a", parse(text), SMALL)
    alone = {"a": a}  # Nobody else is there.
    assert filled(alone, "a", ("b",)) == 5 + 20, "its share, and all that is for whoever comes first"
    assert [filled(alone, "a", (name,)) for name in "cde"] == [5, 5, 5]
    assert a.attachment.queued() == {"b": 25, "c": 5, "d": 5, "e": 5}
    assert {full.peer for full in a.admission.full_queues()} == set("bcde")
    assert filled(alone, "a", ("b", "c")) == 0


def test_a_queue_alone_takes_the_whole_limit() -> None:
    a = Member("a", parse('name = "f"\ndomains.A.members = ["a", "b"]\n'), SMALL)
    assert filled({"a": a}, "a", ("b",)) == 40


def test_room_comes_back_when_the_peer_does() -> None:
    members = without_the_dead(TRIANGLE % "matrix", SMALL)
    filled(members, "a", ("dead",))
    members["dead"] = Member("dead", parse(TRIANGLE % "matrix"), SMALL)
    assert [full.peer for full in members["a"].admission.full_queues()] == ["dead"]
    settle(members, "a", members["a"].step(Submit(("b",), b""), 10**10))
    settle(members, "a", members["a"].step(Connected("dead"), 10**10))
    assert members["a"].admission.full_queues() == []
    assert sends(members, "a", None)


def test_what_goes_beyond_a_relay_is_refused_for_want_of_room_on_the_way_there_alone() -> None:
    members = without_the_dead(BRIDGE, SMALL)
    del members["r"]
    assert filled(members, "a", ("d",)) > 0
    with pytest.raises(Busy, match="the queue to 'r' in 'A' is full"):
        members["a"].step(Submit(("dead",), b""), 0)
    assert sends(members, "a", ("b",))


def test_a_relay_takes_what_goes_to_those_who_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_QUEUED_HARD", 16)
    members = without_the_dead(BRIDGE, MemberOptions())
    for _ in range(40):
        assert sends(members, "a", ("dead",))
    assert members["r"].attachment.queued()["dead"] < 16, "the relay pushes back"
    assert members["a"].attachment.queued()["r"] > 16
    for _ in range(20):
        assert sends(members, "b", ("d",))
    assert members["b"].attachment.queued()["r"] == 0, "what b sends is not behind what a sends"
    assert members["d"].log.position == 20


def test_what_goes_together_is_refused_for_its_own_queues_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_QUEUED_HARD", 16)
    members = without_the_dead(TRIANGLE % "matrix", MemberOptions())
    with pytest.raises(Busy, match=r"the queue to 'dead' in 'A' is full: .* MAX_QUEUED_HARD is 16"):  # noqa: PT012
        for _ in range(20):
            settle(members, "a", members["a"].step(SubmitAll((Submit(("b",)), Submit(("dead",)))), 0))
    members["a"].step(SubmitAll((Submit(("a",)),)), 0)


def test_where_all_confirm_to_all_the_queue_is_one_for_all() -> None:
    text = (
        'name = "f"\ndomains.A = { members = ["a", "b", "dead"], ordering = "vector", confirmation.scheme = "distributed" }\n'
        'domains.D.members = ["a", "d"]\n'
    )
    members = without_the_dead(text, SMALL)
    filled(members, "a", ("b",))
    with pytest.raises(Busy, match="the queue to 'dead' in 'A' is full"):
        members["a"].step(Submit(("b",), b""), 0)
    assert sends(members, "a", ("d",)), "another domain has its own"


def test_notices_are_refused_as_late_as_what_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_QUEUED_HARD", 2 * SMALL.max_queued)
    members = {"a": Member("a", parse(TRIANGLE % "matrix"), SMALL)}
    filled(members, "a", None)
    taken = 0
    with pytest.raises(Busy, match="MAX_QUEUED_HARD"):  # noqa: PT012
        while taken < 1_000:
            members["a"].step(Submit(None, b"", notice=True), 0)
            taken += 1
    assert 10 <= taken <= SMALL.max_queued


def test_what_a_restart_finds_again_counts() -> None:
    for text in (TRIANGLE % "matrix", f"stability = true\n{TRIANGLE % 'matrix'}"):
        topology = parse(text)
        a = Member("a", topology, SMALL)
        filled({"a": a}, "a", ("dead",), BODY)
        again = Member("a", topology, SMALL)
        again.step(Restored(a.snapshot(), (), 0), 0)
        assert again.admission.full_queues() == a.admission.full_queues() != []
        assert again.attachment.queued_bytes_by_peer() == a.attachment.queued_bytes_by_peer()


@pytest.mark.parametrize("most", [1, 2, 7, 100, 1_000_000])
@pytest.mark.parametrize("queues", [1, 2, 3, 50])
def test_shares_and_what_is_common_are_the_limit(most: int, queues: int) -> None:
    limit = Limit("max_queued", most, "frames")
    assert limit.share(queues) >= 1
    assert limit.share(queues) * queues + limit.common(queues) == max(most, queues)
