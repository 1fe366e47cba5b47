"""The short way through a member does what the long way does: the same answers, and the same state to the last field.

Three members of one vector domain, twice: once as they are, once without the short way. Whatever the network does, and whatever
is submitted, both get the same inputs at the same times.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from thence.core.member.contract import Arrived, Connected, Input, Ready, Submit, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.ack_options import RESEND_AFTER_NS
from thence.core.topology.domain import Domain
from thence.core.wire.messages import Packet
from thence.errors import UsageError

MAX_EXAMPLES = 80
NAMES = ("A", "B", "C")
MS = 1_000_000

names = st.sampled_from(NAMES)
actions = st.one_of(
    st.tuples(st.just("submit"), names, st.sampled_from([None, ("A",), ("B",), ("C",), ("A", "C"), ("nobody",)])),
    st.tuples(st.just("submit large"), names, st.sampled_from([None, ("A",), ("B",)])),
    st.tuples(st.sampled_from(["deliver", "deliver", "deliver", "drop", "repeat", "last"]), names, names),
    st.tuples(st.just("wait"), st.integers(0, 2 * RESEND_AFTER_NS), st.none()),
    st.tuples(st.just("timer"), names, st.none()),
    st.tuples(st.just("connected"), names, names),
)


class Fabric:
    """Members, and the packets between them."""

    def __init__(self, *, within_ns: int, short: bool) -> None:
        domain = Domain("d", NAMES, "vector")
        options = MemberOptions(durable=False, ack_within_ns=within_ns)
        self.members = {name: Member(name, domain, options) for name in NAMES}
        for member in self.members.values():
            assert member.attachment.simple
            member.attachment.simple = short
        self.lines: dict[tuple[str, str], list[Packet[Any]]] = {(a, b): [] for a in NAMES for b in NAMES if a != b}
        self.now = 0

    def act(self, what: str, who: Any, other: Any) -> list[Ready | str]:
        """Do one thing; return all that followed from it."""
        if what == "wait":
            self.now += who
            return []
        if what.startswith("submit"):
            return [self._step(who, Submit(other, bytes(100_000 if "large" in what else 10)))]
        if what == "timer":
            return [self._step(who, Timer())]
        if who == other:
            return []
        if what == "connected":
            return [self._step(who, Connected(other))]
        line = self.lines[other, who]
        if not line:
            return []
        if what == "drop":
            line.pop(0)
            return []
        packet = line[-1] if what == "last" else line[0]
        if what != "repeat":
            line.remove(packet)
        return [self._step(who, Arrived(other, packet))]

    def _step(self, name: str, step_input: Input) -> Ready | str:
        self.now += MS // 10
        try:
            ready = self.members[name].step(step_input, self.now)
        except UsageError as error:
            return str(error)
        for peer, packet in ready.send:
            self.lines[name, peer].append(packet)
        return ready

    def state(self) -> list[Any]:
        """Everything that decides what comes next."""
        found: list[Any] = []
        for member in self.members.values():
            (place,) = member.attachment.places.values()
            transport: Any = place.transport
            counts = (
                member.attachment.in_memory,
                member.log.position,
                transport.queued,
                transport.queued_bytes,
                transport.wake_at,
            )
            found += [member.snapshot(), counts, list(transport.to_visit)]
            for channel in transport.channels.values():
                fields = dict(vars(channel))
                found += [*(vars(fields.pop(part)) for part in ("window", "acks", "inbound")), fields]
        return found


@settings(max_examples=MAX_EXAMPLES, deadline=None)
@given(st.sampled_from([0, 5 * MS]), st.lists(actions, min_size=20, max_size=60))
def test_both_ways_lead_to_the_same(within_ns: int, story: list[tuple[str, Any, Any]]) -> None:
    short, long = Fabric(within_ns=within_ns, short=True), Fabric(within_ns=within_ns, short=False)
    for what, who, other in story:
        assert short.act(what, who, other) == long.act(what, who, other)
        assert short.state() == long.state()


def test_the_short_way_is_gone_when_two_talk() -> None:
    """Or the comparison would compare the long way with itself."""
    fabric = Fabric(within_ns=5 * MS, short=True)
    gone = []
    for member in fabric.members.values():
        for part, method in ((member.submitter, "submit"), (member.receiver, "arrived")):
            setattr(part, method, lambda *_: gone.append("long"))
    for _ in range(5):
        fabric.act("submit", "A", ("B",))
        fabric.act("deliver", "B", "A")
        fabric.act("submit", "B", ("A",))
        fabric.act("deliver", "A", "B")
    assert gone == []
