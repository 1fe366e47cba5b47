"""Every run of a small change: members send, frames arrive, the command asks and is answered, in every possible order.

The explorer (``explorer``) tries every run of one topology. This tries every run of a change from one to the next, with the
real members and the real ``core.reconfig.coordinator``, over a network that is exact: what arrives when, whom the command has
asked by then, when it dies, and when a member that holds goes back by itself.

Rules:

* A command asks one member after the other, in one order: what happens between two questions happens in every order. It reads
  and is answered at once; a request is carried out at once, in its turn.
* A frame of a version is taken by members of that version. A member that is prepared is told by the first frame of the next one.
* Members that are *lost* are asked nothing, and may go on as they like: one that is dead is one that does nothing more, and whose
  frames come too late. When survivors compare what they have, what none of them has is given up: from then on nobody is expected
  to have got it. At the end either all survivors have delivered a message or none.
* There may be a command for another change beside: a *rescue*, which knows that some are lost by now on whom the first change
  counts. It leads the survivors to its topology, or finishes the first change for them. The others give up after
  ``MAX_ATTEMPTS``: otherwise the two could go on for ever.
* The checks are those of the explorer (``pasts``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, NamedTuple

from thence.core.member.contract import Arrived, Input, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.reconfig.coordinator import Coordinator
from thence.core.reconfig.flush import Inventory, Settlement, settle
from thence.core.reconfig.protocol import Flush, Follow, Hold, Resume, Standing, ViewInput
from thence.core.reconfig.retention import MAX_RETAINED_BYTES
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.errors import UsageError
from thence.sim.search.member_steps import BODY, MemberSteps
from thence.sim.search.pasts import Pasts
from thence.sim.search.search import MAX_STEPS, Broken, Explored, Model, Search

MAX_ATTEMPTS: Final = 2
"""How often a command begins anew that another one hinders."""


class ChangeCase(NamedTuple):
    """What to explore: from which topology to which, how many messages, and how often what goes wrong."""

    old: Topology
    new: Topology
    messages: int
    deaths: int = 0
    """How often a command dies, and another one goes on."""
    commands: int = 1
    """How many there are at the same time."""
    leases: int = 0
    """How often a member that holds goes back by itself."""
    lost: tuple[str, ...] = ()
    """Who is gone for good, or suspected."""
    rescue: Topology | None = None
    """What another command leads to, beside the others, once ``later_lost`` are lost."""
    later_lost: tuple[str, ...] = ()
    """Who is lost, or suspected, later."""
    absent: tuple[str, ...] = ()
    """Who is left out of it, and hears of it later."""
    absent_later: tuple[str, ...] = ()
    """Who is left out of what another command leads to."""
    coordinator_type: type[Coordinator] = Coordinator
    """For planted mistakes."""
    settle: Callable[[tuple[str, ...], Mapping[str, Inventory]], Settlement] = settle
    """The same."""


class FrameInFlight(NamedTuple):
    """A frame on its way: from, to, its version and the fingerprint of that, and its number (``MemberSteps.frames``)."""

    source: int
    target: int
    version: int
    fingerprint: str
    frame: int


class Lead(NamedTuple):
    """What a command has in mind: its attempt, the last round, the answers so far, and what it has still to ask for."""

    attempt: int = 0
    before: tuple[Standing, ...] = ()
    answers: tuple[Standing, ...] = ()
    requests: tuple[tuple[str, ViewInput], ...] = ()
    rolling: bool = False


class ChangeState(NamedTuple):
    """The members, what is on its way, what each command has in mind, and how much may still go wrong."""

    members: tuple[int, ...]
    flights: tuple[FrameInFlight, ...]
    leads: tuple[Lead | None, ...]
    """Of each command; None: it has done its work, or left it to another one."""
    past: int
    sent: int
    deaths: int
    leases: int


class Reconfigurations(Model[ChangeState, str]):
    """Everything that may happen in a change."""

    def __init__(self, case: ChangeCase) -> None:
        """Begin with the members of the old topology, and those who join, who have the new one already."""
        self.case = case
        self.must_end = case.rescue is not None
        self.names = tuple(dict.fromkeys((*case.old.processes, *case.new.processes)))
        self.aims = [(case.new, case.lost)] * case.commands + ([(case.rescue, case.later_lost)] if case.rescue else [])
        """Where each command leads, and without whom."""
        self.lost = tuple(dict.fromkeys((*case.lost, *case.later_lost)))
        self.survivors = sum(1 << at for at, name in enumerate(self.names) if name not in self.lost)
        options = MemberOptions(reliable=False, durable=False, retain_bytes=MAX_RETAINED_BYTES if self.lost else 0)
        old, new = Routes(case.old), Routes(case.new)
        members = [Member(name, old if name in case.old.homes else new, options) for name in self.names]
        # An origin may send all messages, so each has as many bits.
        self.steps = MemberSteps(members, case.messages, self._moved)
        self.at = self.steps.number
        self.pasts = Pasts(len(self.names), case.messages, frozenset({"fifo", "causal"}))
        of_one = (1 << case.messages) - 1
        self.of_the_lost = sum(of_one << self.at[name] * case.messages for name in self.lost)

    def _moved(self, member: Member) -> Hashable:
        """Return what a member has sent and taken so far, which its snapshot leaves out and quiet depends on."""
        places = member.attachment.places.values() if self.lost else ()
        return member.reconfigurer.standing().moved, tuple(place.transport.moved(self.lost) for place in places)

    def start(self) -> ChangeState:
        """Return the state in which nothing has happened yet."""
        members, leads = tuple(range(len(self.names))), (Lead(),) * len(self.aims)
        return ChangeState(members, (), leads, 0, 0, self.case.deaths, self.case.leases)

    def _member(self, state: ChangeState, name: str) -> Member:
        return self.steps.members[state.members[self.at[name]]]

    def _apply(self, state: ChangeState, at: int, key: tuple[Hashable, ...], given: Input) -> ChangeState:
        """Return the state after a member was given an input; ``key`` tells it from other inputs."""
        step = self.steps.make(state.members[at], key, given)
        if step.refused:
            raise Broken(f"refused: {step.refused}")
        topology = self.steps.members[step.after].topology
        everyone = sum(1 << self.at[name] for name in topology.processes)
        past = self.pasts.after(state.past, at, everyone, step.sent, step.delivered)
        fabric, count = (topology.version, topology.fingerprint), len(self.names)
        flights = (*state.flights, *(FrameInFlight(at, channel % count, *fabric, frame) for channel, frame in step.frames))
        members = (*state.members[:at], step.after, *state.members[at + 1 :])
        return state._replace(members=members, flights=tuple(sorted(flights)), past=past)

    def following(self, state: ChangeState) -> Iterator[tuple[str, ChangeState]]:
        """Give all that may happen next, each with the state then."""
        yield from self._submissions(state)
        yield from self._arrivals(state)
        yield from self._introductions(state)
        for which, lead in enumerate(state.leads):
            if lead is not None:
                yield from self._led(state, which, lead)
                if state.deaths:
                    yield "the command dies", _leading(state, which, Lead())._replace(deaths=state.deaths - 1)
        if state.leases:
            for at, number in enumerate(state.members):
                view = self.steps.members[number].view.state
                if view.phase == "holding":
                    then = self._apply(state, at, ("resume",), Resume(view.attempt))
                    yield f"{self.names[at]} goes back by itself", then._replace(leases=state.leases - 1)

    def _submissions(self, state: ChangeState) -> Iterator[tuple[str, ChangeState]]:
        if state.sent == self.case.messages:
            return
        for at, name in enumerate(self.names):
            try:
                then = self._apply(state, at, ("submit",), Submit(None, BODY))
            except UsageError:
                continue  # It is about to leave, or has left.
            yield f"{name} sends", then._replace(sent=state.sent + 1)

    def _arrivals(self, state: ChangeState) -> Iterator[tuple[str, ChangeState]]:
        for number, flying in enumerate(state.flights):
            if flying in state.flights[:number]:
                continue
            source, target = self.names[flying.source], self.steps.members[state.members[flying.target]]
            following = state
            if self._too_late(flying, target):
                others = state.flights[:number] + state.flights[number + 1 :]
                yield f"a frame of {source} comes too late for {target.name}", state._replace(flights=others)
                continue
            switch = target.view.heard_from(source, flying.fingerprint) if source in target.topology.homes else None
            if switch is not None:
                following = self._apply(state, flying.target, _key(switch), switch)
            if self.steps.members[following.members[flying.target]].topology.fingerprint != flying.fingerprint:
                if flying.version > target.topology.version:
                    continue
                if self.steps.frames[flying.frame][0] not in target.attachment.kept:
                    raise Broken("a frame of the old version was still on its way")
                if self._member(state, source).topology.fingerprint != target.topology.fingerprint:
                    continue  # Its sender repeats it when it has the new version, too.
            flights = list(following.flights)
            flights.remove(flying)
            given = Arrived(source, self.steps.frames[flying.frame][1])
            without = following._replace(flights=tuple(flights))
            then = self._apply(without, flying.target, (flying.source, flying.frame), given)
            yield f"a frame of {source} arrives at {target.name}", then

    def _introductions(self, state: ChangeState) -> Iterator[tuple[str, ChangeState]]:
        """One who was left out hears of it from a peer."""
        for name in (*self.case.absent, *self.case.absent_later):
            member = self._member(state, name)
            if member.topology.version == self.case.new.version or member.view.state.phase not in ("normal", "holding"):
                continue
            for peer in dict.fromkeys(peer for place in member.attachment.places.values() for peer in place.peers):
                topology = self._member(state, peer).topology
                if topology.version > member.topology.version:
                    follow = Follow(topology, (peer,))
                    try:
                        yield f"{name} follows {peer}", self._apply(state, self.at[name], _key(follow), follow)
                    except UsageError:
                        continue

    def _too_late(self, flying: FrameInFlight, target: Member) -> bool:
        """Whether a frame of one who is lost, or for one, is taken no more."""
        source, topology = self.names[flying.source], target.topology
        if source not in self.lost and target.name not in self.lost:
            return False
        of_another = flying.version <= topology.version and flying.fingerprint != topology.fingerprint
        return target.view.deaf_to(source) or of_another

    def _led(self, state: ChangeState, which: int, lead: Lead) -> Iterator[tuple[str, ChangeState]]:
        """A command does its next thing."""
        new, lost = self.aims[which]
        absent = self.case.absent_later if new is self.case.rescue else self.case.absent
        members = tuple(name for name in self.case.old.processes if name not in lost and name not in absent)
        if lead.requests:
            (name, request), *rest = lead.requests
            said = f"{name} is asked to {type(request).__name__.lower()}"
            left = _leading(state, which, lead._replace(requests=tuple(rest)))
            try:
                yield said, self._apply(left, self.at[name], _key(request), request)
            except UsageError:
                yield f"{said}, in vain", left
            return
        asked = members[len(lead.answers)]
        answers = (*lead.answers, self._member(state, asked).reconfigurer.standing())
        if len(answers) < len(members):
            yield f"{asked} is asked", _leading(state, which, lead._replace(answers=answers))
            return
        leading = self.case.coordinator_type(self.case.old, new, lost)
        leading.attempt, leading.absent = lead.attempt, absent
        leading.before = dict(zip(members, lead.before, strict=True)) if lead.before else {}  # Its whole memory,
        leading.rolling = lead.rolling  # with this.
        try:
            decision = leading.decide(dict(zip(members, answers, strict=True)), 0)
        except UsageError as error:
            if not self._left_to_another(lead, answers):
                raise Broken(str(error)) from None
            finished = {_reached(standing) for standing in answers} == {self.case.new.fingerprint}
            # People do not give up before it is one or the other. But if it began anew and is alone, nothing will be otherwise.
            alone = not lead.attempt and all(other is None for at, other in enumerate(state.leads) if at != which)
            again = new is self.case.rescue and not finished and not alone
            yield str(error), _leading(state, which, Lead() if again else None)
            return
        if self.case.rescue not in (None, new) and leading.attempt > MAX_ATTEMPTS:
            yield "the command gives up", _leading(state, which, None)
            return
        requests = tuple(decision.requests.items())
        if decision.flush:
            state, requests = self._owed(state, leading.attempt, members, lost, decision.flush)
        then = None if decision.done else Lead(leading.attempt, answers, (), requests, leading.rolling)
        yield f"{asked} is asked: {decision.said}", _leading(state, which, then)

    def _owed(
        self, state: ChangeState, attempt: int, members: tuple[str, ...], lost: tuple[str, ...], lacking: tuple[str, ...]
    ) -> tuple[ChangeState, tuple[tuple[str, ViewInput], ...]]:
        """All survivors say what they have: nobody takes anything any more, so it makes no difference in which order."""
        of = {name: self._member(state, name) for name in members}
        try:
            reports = {name: member.survivor.report() for name, member in of.items()}
        except UsageError:
            return state, ()  # Another command has led some of them on meanwhile: the next round shows it.
        found = self.case.settle(lost, reports)
        requests = []
        for name in lacking:
            envelopes = tuple(of[found.holders[owed]].survivor.give((owed,))[0] for owed in found.owed[name])
            requests.append((name, Flush(attempt, found.list_id, 0, True, envelopes)))
        owed = {name for names in found.owed.values() for name in names}
        kept = sum(1 << self.steps.bit_of(name.origin, name.number) for name in owed)
        for at, delivered in enumerate(self.pasts.known[state.past].delivered):
            kept |= delivered if self.survivors >> at & 1 else 0
        past = self.pasts.expect_less(state.past, self.survivors, self.of_the_lost & ~kept)
        return state._replace(past=past), tuple(requests)

    def _left_to_another(self, lead: Lead, answers: tuple[Standing, ...]) -> bool:
        if self.case.rescue is not None:
            return True  # Each may stop the other; whether that ends well is seen at the end.
        return self.case.commands > 1 and max(standing.attempt for standing in answers) > lead.attempt

    def check_end(self, state: ChangeState) -> None:
        """Nothing can happen any more: all must be where they should be, and have what was for them."""
        _, addressed, delivered, *_ = self.pasts.known[state.past]
        known = 0
        for at in range(len(self.names)):
            known |= delivered[at] if self.survivors >> at & 1 else 0
        ends = [self.case.new, *([self.case.rescue] if self.case.rescue else [])]
        standings = {name: self._member(state, name).reconfigurer.standing() for name in self.names}
        reached = {_reached(standing) for name, standing in standings.items() if name not in self.lost}
        end = next((topology for topology in ends if {topology.fingerprint} == reached), self.case.new)
        for at, name in enumerate(self.names):
            if name in self.lost:
                continue
            standing = standings[name]
            arrived = standing.phase == ("normal" if name in end.homes else "left")
            if not arrived or _reached(standing) != end.fingerprint or standing.waiting:
                raise Broken(f"{name} stays behind")
            if addressed[at] & ~(self.of_the_lost & ~known) != delivered[at]:
                raise Broken("agreement" if addressed[at] & ~delivered[at] & self.of_the_lost & known else "completeness")


def _leading(state: ChangeState, which: int, lead: Lead | None) -> ChangeState:
    return state._replace(leads=(*state.leads[:which], lead, *state.leads[which + 1 :]))


def _key(request: ViewInput) -> tuple[object, ...]:
    """Return what tells a request from others."""
    if isinstance(request, Hold):
        return "Hold", request.attempt, request.topology.fingerprint, request.lost, request.absent
    if isinstance(request, Follow):
        return "Follow", request.topology.fingerprint, request.peers
    return (type(request).__name__, *(request[:2] if isinstance(request, Flush) else request))


def _reached(standing: Standing) -> str:
    return standing.next_fingerprint if standing.phase == "left" else standing.fingerprint


def explore_change(case: ChangeCase, *, limit: int = MAX_STEPS) -> Explored[str]:
    """Try every run; return the shortest that breaks something, or that there is none."""
    return Search(Reconfigurations(case), limit).run()
