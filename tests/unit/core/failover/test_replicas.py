"""Replicas: what a topology lets through, who is handed what, who forwards, and what a restart finds again."""

from __future__ import annotations

from typing import Any

import pytest

from thence.core.failover.replicas import MAX_KEPT, Takeover
from thence.core.member.contract import Arrived, Ready, Restored, Submit, Suspicion
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.reconfig.concern import concerned_by
from thence.core.reconfig.protocol import Hold, Resume
from thence.core.topology.domain import Domain
from thence.core.topology.routing import Routes
from thence.core.topology.toml import parse, write
from thence.core.wire.messages import Envelope, Packet
from thence.core.wire.records import Record, Shared
from thence.errors import Busy, ConfigError, StorageError, TopologyError, UsageError

TEXT = """
name = "twin"
[domains.A]
members = ["a", "r1", "r2"]
ordering = "matrix"
[domains.D]
members = ["d", "r1", "r2"]
ordering = "matrix"
[[relays]]
replicas = ["r1", "r2"]
"""

TWIN = parse(TEXT)
TRUSTING = MemberOptions(reliable=False, durable=True)


def member(name: str) -> Member:
    return Member(name, TWIN, TRUSTING)


def sent(ready: Ready) -> list[tuple[str, str, str]]:
    """Give to whom, in which domain and what was sent."""
    return [
        (peer, packet.domain, str(frame.envelope.id)) for peer, packet in ready.send for frame in packet.frames if frame.envelope
    ]


def packets(ready: Ready, to: str) -> list[Packet[Any]]:
    return [packet for peer, packet in ready.send if peer == to]


def test_a_sender_takes_max_queued_messages_that_a_dead_replica_has_not_got() -> None:
    """What docs/concepts/takeover.md says takeover buys."""
    twin = parse(TEXT.replace('ordering = "matrix"\n', ""))
    members = {name: Member(name, twin, MemberOptions(durable=False, max_queued=200)) for name in ("a", "d", "r2")}
    came = 0

    def carry(sender: str, ready: Ready) -> None:
        nonlocal came
        came += len(ready.deliver) if sender == "d" else 0
        for peer, packet in ready.send:
            if peer in members:
                carry(peer, members[peer].step(Arrived(sender, packet), 0))

    for name, living in members.items():
        carry(name, living.step(Suspicion("r1", True), 0))
    for _ in range(200):
        carry("a", members["a"].step(Submit(("d",), b"x"), 0))
    assert came == 200
    with pytest.raises(Busy, match="the queue to 'r1' in 'A' is full: 200 frames are not acknowledged; max_queued is 200"):
        members["a"].step(Submit(("d",), b"x"), 0)


def test_replicas_count_as_one_process() -> None:
    assert TWIN.find_cycle() is None
    assert (TWIN.relays, TWIN.joints, TWIN.senders) == (("r1", "r2"), {"r1": ("A", "D")}, ("a", "d"))
    assert parse(write(TWIN)).fingerprint == TWIN.fingerprint
    with pytest.raises(
        TopologyError, match=r"a cycle: A - r2 - D - r1 - A\..* or let r2 and r1 stand for one relay, as replicas"
    ):
        parse(TEXT[: TEXT.index("[[relays]]")])


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ('["r1"]', "twin:9: relays: replicas are at least two different processes"),
        ('["r1", "r1"]', "twin:9: relays: replicas are at least two different processes"),
        ('["r1", "r3"]', "twin:10: relays: there is no process 'r3'"),
        ('["r1", "a"]', "twin:9: relays: 'r1' is in A, D, 'a' in A: who stands for the same relay is in the same domains"),
        ('["r1", "r2"]\n[[relays]]\nreplicas = ["r2", "r1"]', "relays: 'r2' stands for two relays"),
        ('"r1"', "twin:10: relay 1: replicas: Expected a list, got text"),
    ],
)
def test_what_makes_no_sense_is_refused_by_line(replicas: str, said: str) -> None:
    head = TEXT[: TEXT.index("replicas = ")]
    with pytest.raises(ConfigError, match="twin:") as caught:
        parse(f"{head}replicas = {replicas}\n", "twin")
    assert said in str(caught.value)


def test_an_ordering_without_gates_is_refused() -> None:
    with pytest.raises(TopologyError, match="domain 'A' runs flood, which cannot make them wait for each other; there are: "):
        parse(TEXT.replace('ordering = "matrix"', 'ordering = "flood"', 1))


def test_a_replica_of_a_link_is_refused() -> None:
    linked = '[domains.E]\nmembers = ["e"]\n[[links]]\nbetween = ["D", "E"]\nrelays = [["r1", "e"]]\n'
    with pytest.raises(TopologyError, match="'r1' is a relay of a link too"):
        parse(TEXT + linked)


def test_domains_with_replicas_take_over_at_once_unless_told_otherwise() -> None:
    plain = parse(TEXT.replace('ordering = "matrix"\n', ""))
    assert [(domain.ordering, domain.acks.whole) for domain in plain.domains.values()] == [("vector", True)] * 2
    assert plain.takes_over_at_once(("r1", "r2"))
    assert not TWIN.takes_over_at_once(("r1", "r2"))


def test_all_replicas_are_handed_what_goes_through() -> None:
    routes = Routes(TWIN)
    assert routes.plan("a", "a", ("d",), None).into == {"A": ("r1", "r2")}
    assert routes.plan("r2", "a", ("d", "r1"), "A").into == {"D": ("d",)}
    assert routes.path("a", "d") == ["a", "A", "r1", "D", "d"]


def test_the_first_forwards_and_the_second_keeps() -> None:
    a, r1, r2 = member("a"), member("r1"), member("r2")
    ready = a.step(Submit(("d",), b"m"), 0)
    (to_first,), (to_second,) = packets(ready, "r1"), packets(ready, "r2")
    forwarded = r1.step(Arrived("a", to_first), 0)
    assert sent(forwarded) == [("d", "D", "a:1"), ("r2", "D", "a:1")]
    assert sent(r2.step(Arrived("a", to_second), 0)) == []
    assert sent(r2.fork().step(Suspicion("r1", True), 0)) == [("d", "D", "a:1"), ("r1", "D", "a:1")]
    # When it has seen that the first one did it, there is nothing to do.
    r2.step(Arrived("r1", packets(forwarded, "r2")[0]), 0)
    assert sent(r2.step(Suspicion("r1", True), 0)) == []
    assert r2.step(Suspicion("r1", True), 0).persist == ()  # No news.
    assert len(r2.step(Suspicion("r1", False), 0).persist) == 1


def test_the_second_copy_is_dropped() -> None:
    a, r1, r2, d = (member(name) for name in ("a", "r1", "r2", "d"))
    r2.step(Suspicion("r1", True), 0)
    ready = a.step(Submit(("d",), b"m"), 0)
    copies = [(relay.name, relay.step(Arrived("a", packets(ready, relay.name)[0]), 0)) for relay in (r1, r2)]
    delivered = [len(d.step(Arrived(name, packets(copy, "d")[0]), 0).deliver) for name, copy in copies]
    assert delivered == [1, 0]


def test_a_copy_waits_for_the_original_and_says_so() -> None:
    a, r1, r2 = member("a"), member("r1"), member("r2")
    ready = a.step(Submit(("d",), b"m"), 0)
    forwarded = r1.step(Arrived("a", packets(ready, "r1")[0]), 0)
    r2.step(Arrived("r1", packets(forwarded, "r2")[0]), 0)
    (wait,) = r2.attachment.waiting()
    assert (str(wait.message), wait.peer, wait.missing) == ("a:1", "r1", ("a, by its own way", 1))
    restored = member("r2")
    restored.step(Restored(r2.snapshot(), (), 0), 0)
    for replica in (r2, restored):
        replica.step(Arrived("a", packets(ready, "r2")[0]), 0)
        assert replica.attachment.waiting() == []
        assert sent(replica.step(Suspicion("r1", True), 0)) == []


def test_a_restart_finds_again_what_was_kept_and_who_was_suspected() -> None:
    a, r2 = member("a"), member("r2")
    records: list[Record] = []
    for step_input in (Arrived("a", packets(a.step(Submit(("d",), b"1"), 0), "r2")[0]), Suspicion("r1", True)):
        records += r2.step(step_input, 0).persist
    ready = r2.step(Arrived("a", packets(a.step(Submit(("d",), b"2"), 0), "r2")[0]), 0)
    assert sent(ready)[0] == ("d", "D", "a:2")
    restored = member("r2")
    restored.step(Restored(None, (*records, *ready.persist), 0), 0)
    assert restored.snapshot() == r2.snapshot()
    with pytest.raises(StorageError, match="makes no difference"):
        Member("a", Domain("A", ("a", "b"), "matrix")).step(Restored(None, [records[1]], 0), 0)


def test_a_replica_sends_nothing_itself() -> None:
    with pytest.raises(UsageError, match="'r1' is a replica of a relay: it carries messages of others and sends none itself"):
        member("r1").step(Submit(None, b""), 0)


def test_only_who_shares_a_place_can_be_suspected() -> None:
    assert member("a").step(Suspicion("r1", True), 0) == Ready()
    with pytest.raises(UsageError, match="'d' shares no domain and no link with 'a'"):
        member("a").step(Suspicion("d", True), 0)


def test_who_keeps_too_much_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    a, r2 = member("a"), member("r2")
    monkeypatch.setattr(Takeover, "kept", MAX_KEPT)
    monkeypatch.setattr(Takeover, "kept_for", lambda _, domain: MAX_KEPT if domain == "D" else 0)
    (packet,) = packets(a.step(Submit(("d",), b"m"), 0), "r2")
    (refusal,) = r2.step(Arrived("a", packet), 0).refused
    assert "100000 of 0 bytes are kept for the replica that forwards; MAX_KEPT is 100000" in str(refusal)


LOCAL = parse(TEXT + 'local = "A"\n')


def test_replicas_of_a_local_domain_send_and_are_written_to_there() -> None:
    assert LOCAL.senders == LOCAL.processes == ("a", "r1", "r2", "d")
    assert (LOCAL.located("r1"), LOCAL.located("d")) == (("A",), ("D",))
    assert parse(write(LOCAL)).fingerprint == LOCAL.fingerprint != TWIN.fingerprint
    r2 = Member("r2", LOCAL, TRUSTING)
    # It writes to its own domain; the one that forwards carries it on, and so does the other one, which keeps it until then.
    ready = r2.step(Submit(("a", "d", "r2"), b"m"), 0)
    assert sent(ready) == [("a", "A", "r2:1"), ("r1", "A", "r2:1")]
    assert [str(delivery.envelope.id) for delivery in ready.deliver] == ["r2:1"]
    assert sent(r2.step(Suspicion("r1", True), 1)) == [("d", "D", "r2:1"), ("r1", "D", "r2:1")]


def test_what_is_for_a_replica_from_outside_goes_into_its_domain() -> None:
    """r2 delivers it when it comes out there, so before whatever depends on it there."""
    d, r1, r2 = (Member(name, LOCAL, TRUSTING) for name in ("d", "r1", "r2"))
    ready = d.step(Submit(("r2",), b"m"), 0)
    assert sent(ready) == [("r1", "D", "d:1"), ("r2", "D", "d:1")]
    assert r2.step(Arrived("d", packets(ready, "r2")[0]), 0).deliver == ()
    forwarded = r1.step(Arrived("d", packets(ready, "r1")[0]), 0)
    assert sent(forwarded) == [("r2", "A", "d:1")]
    (copy,) = packets(forwarded, "r2")
    assert [str(delivery.envelope.id) for delivery in r2.step(Arrived("r1", copy), 0).deliver] == ["d:1"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            TEXT + 'local = "B"\n',
            "local = 'B' is none of A, D: it is the one of their domains",
        ),
        (
            TEXT.replace("matrix", "sequenced", 1) + 'local = "A"\n',
            "local = 'A', which runs sequenced: there",
        ),
    ],
)
def test_a_local_domain_must_be_one_of_theirs_in_which_nothing_goes_round(text: str, match: str) -> None:
    with pytest.raises(TopologyError, match=match):
        parse(text)


def test_a_restart_finds_again_what_a_replica_alone_has() -> None:
    """Its own message leaves its domain when another one has acknowledged it, also where it crashed in between."""
    text = TEXT.replace('ordering = "matrix"\n', "") + 'local = "A"\n'
    options = MemberOptions()
    r1, a = Member("r1", parse(text), options), Member("a", parse(text), options)
    first = r1.step(Submit(("d",), b"m"), 0)
    assert {packet.domain for _, packet in first.send} == {"A"}
    acked = a.step(Arrived("r1", packets(first, "a")[0]), 1)
    for snapshot, records in ((None, list(first.persist)), (r1.snapshot(), [])):
        again = Member("r1", parse(text), options)
        again.step(Restored(snapshot, records, 0), 2)
        ready = again.step(Arrived("a", packets(acked, "r1")[0]), 3)
        assert [record for record in ready.persist if isinstance(record, Shared)] == [Shared(1, 3)]
        assert ("d", "D", "r1:1") in sent(ready)
        # And the record is stepped through as it happened.
        third = Member("r1", parse(text), options)
        third.step(Restored(snapshot, [*records, *ready.persist], 0), 4)
        assert third.attachment.takeover is not None
        assert (third.attachment.takeover.kept, third.attachment.takeover.alone) == (0, {})


def test_what_a_replica_keeps_goes_on_with_its_places() -> None:
    routes, envelope = Routes(TWIN), Envelope("a", 3, None, b"x")
    before, after = Takeover("r2", routes), Takeover("r2", routes)
    before.is_first(envelope)
    before.suspect("r1", True)
    before.keep("A", envelope, None)
    before.keep("D", envelope, None)
    after.go_on(before, {"D": ("r1", "d")})
    assert (after.has(envelope), after.keeps("D", envelope), after.kept_bytes_for("D") > 0) == (True, True, True)
    assert (after.kept_for("A"), after.forwards) == (0, True)
    after.go_on(before, {})
    assert not after.forwards, "whom we meet in no place that goes on we are told of again"


def test_a_replica_keeps_what_goes_into_a_domain_that_is_replaced_until_it_is() -> None:
    """The one that forwards, too: the other one may have sent it on before it held itself, and so takes it off this one."""
    first = parse(TEXT.replace('["a"', '["a", "b"') + '[domains.E]\nmembers = ["d", "e"]\nordering = "matrix"\n')
    split = parse(
        TEXT.replace('name = "twin"', 'name = "twin"\nversion = 2')
        + '[domains.E]\nmembers = ["d", "e"]\nordering = "matrix"\n[domains.F]\nmembers = ["a", "b"]\nordering = "matrix"\n'
    )
    assert concerned_by(first, split) == ("a", "b", "r1", "r2")
    members = {name: Member(name, first, TRUSTING) for name in first.processes}
    members["r1"].step(Hold(1, split, limited=True), 0)
    asked = members["d"].step(Submit(("a",), b"x"), 0)
    forwarder = members["r1"].step(Arrived("d", packets(asked, "r1")[0]), 0)
    assert sent(forwarder) == []
    assert members["r1"].attachment.takeover is not None
    assert members["r1"].attachment.takeover.kept_for("A") == 1
    assert members["r1"].attachment.border.crossings == []
    resumed = members["r1"].step(Resume(1), 0)
    assert sorted(sent(resumed)) == [("a", "A", "d:1"), ("r2", "A", "d:1")]
    assert members["r1"].attachment.takeover.kept == 0
