"""Simulated runs in which the fabric changes under way, led by a command that may die, come again, or be there twice.

Rules:

* The command and the members do what they do in a running fabric: the same ``core.reconfig.coordinator`` decides, the same
  ``core.reconfig.protocol`` answers. What is simulated is what lies between: questions and answers that take time, get lost, or
  find nobody.
* A member answers when all that it has done so far is on its disk.
* A packet is of the version in which it was made. It is taken by members of that version only, as a connection between servers
  stands for one version; a member that is prepared and hears a member of the old fabric speak in the new version has been told.
* A member that holds and hears nothing from a command for ``LEASE_NS`` goes back to normal by itself.
* A member watches over its peers of the version that it has, and begins anew with whom it suspects when it switches.
* A change may be made without members that are *lost*: dead, or suspected by mistake. One that still speaks or calls is told
  by whom it speaks to, as a server is when it is refused.
* A member may also be lost *unforeseen*, at any moment of the last change, dead or by mistake. From then on people want another
  version: the one in force without it, or, if the change turns out to be decided, what follows that one without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from thence.core.member.contract import Ready
from thence.core.reconfig.coordinator import Coordinator
from thence.core.reconfig.flush import Inventory, settle
from thence.core.reconfig.protocol import Expel, Flush, Resume, Standing, ViewInput
from thence.core.reconfig.retention import MAX_RETAINED_BYTES
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope, MessageId, Packet
from thence.errors import UsageError
from thence.sim.node import Node
from thence.sim.options import SimulationOptions
from thence.sim.simulation import SUSPECT_AFTER_NS, Simulation, peers, suspecting
from thence.trace.recorder import Sink

LEASE_NS: Final = 1_000_000_000
"""How long a member holds without hearing of a command."""

ROUND_NS: Final = 60_000_000
"""How long a command waits for answers, and then for what it asked for to be done."""

MAX_DELAY_NS: Final = 25_000_000
"""How long a question or an answer takes at most; what takes longer counts as lost."""

TIMEOUT_NS: Final = 15_000_000_000
"""How long a command tries, as the real one does with ``--timeout``: one that leads and one that aborts could go on for ever."""

PAUSE_NS: Final = 1_500_000_000
"""How long nobody leads after a command died, at most."""

SUSPICIONS_NS: Final = 3_000_000_000
"""For how long beyond the traffic somebody may be suspected by mistake: about as long as changes go on."""

Answer = Standing | tuple[Inventory, Mapping[MessageId, Envelope]]
"""Where a member stands, or what it has to compare with others."""


CALLS_NS: Final = (1_000_000_000, 4_000_000_000)
"""When one that lives on though it was lost calls its old peers, if it has nothing else to say."""


class Versioned(NamedTuple):
    """A packet on its way, and the version of the topology in which it was made."""

    version: int
    packet: Packet[Any]
    fingerprint: str = ""


class ReconfiguringNode(Node):
    """A process that can be asked where it stands, and to take part in a change."""

    lease_ns = LEASE_NS

    def __init__(self, *given: Any) -> None:
        """As any process."""
        super().__init__(*given)
        self._replies: dict[int, tuple[Callable[[Any], None], Answer]] = {}
        self.on_speaker_lost: Callable[[str, int], None] | None = None
        """Told who still speaks in an old version though it was lost, and of which version it should know."""
        self.on_switched: Callable[[ReconfiguringNode], None] | None = None
        """Told that it has switched."""
        self._heard_at = 0
        self.resumed = 0
        """How often it went back by itself."""

    def ask(self, reply: Callable[[Standing], None], attempt: int = 0) -> None:
        """Say where it stands now, once that is on disk, to one who leads an attempt, or only asks."""
        if attempt == self._member.view.state.attempt:
            self._heard_at = self._kernel.now
        self._reply(reply, self._member.standing())

    def ask_report(self, reply: Callable[[tuple[Inventory, Mapping[MessageId, Envelope]]], None]) -> None:
        """Say what it has, once that is on disk."""
        self._heard_at = self._kernel.now
        try:
            report = self._member.report()
        except UsageError:
            return  # The next round of questions shows why.
        names = tuple(copy.id for copy in report.copies)
        self._reply(reply, (report, dict(zip(names, self._member.give(names), strict=True))))

    def _reply(self, reply: Callable[[Any], None], answer: Answer) -> None:
        if not self._pending:
            reply(answer)
            return
        turn = Ready()
        self._replies[id(turn)] = (reply, answer)
        self._pending.append(turn)

    def change(self, change: ViewInput) -> None:
        """Do what a command asks for, if that may be."""
        self._heard_at = self._kernel.now
        version = self._member.topology.version
        try:
            self._handle(self._member.step(change, self._kernel.now))
        except UsageError:
            return  # The next round of questions shows it.
        if self._member.topology.version > version and self.on_switched is not None:
            self.on_switched(self)
        if self._member.view.holding:
            self._kernel.schedule(self.lease_ns, self._end_lease, self._life)

    def _end_lease(self, life: int) -> None:
        if life != self._life or not self.up or self._member.view.state.phase != "holding":
            return  # Nobody goes on for one that is down, or for an attempt that is over.
        if self._kernel.now - self._heard_at < self.lease_ns:
            self._kernel.schedule(self.lease_ns, self._end_lease, life)
            return
        self.resumed += 1
        self._handle(self._member.step(Resume(self._member.view.state.attempt), self._kernel.now))

    def submit(self, to: tuple[str, ...] | None, body: bytes) -> bool:
        """Let the application send; what can never be sent is dropped."""
        try:
            return super().submit(to, body)
        except UsageError:
            self._statistics.refused += 1
            return True

    def receive(self, source: str, packet: Any) -> None:
        """A packet has come in from the network."""
        if self.up and packet.version == self._member.topology.version + 1:
            self._told_of(source, packet.fingerprint)
        if self.up and packet.fingerprint == self._member.topology.fingerprint:
            super().receive(source, packet.packet)
        elif not self.up:
            self._statistics.missed_while_down += 1
        elif source in self._member.view.state.gone and self.on_speaker_lost is not None:
            self.on_speaker_lost(source, self._member.topology.version)

    def suspect(self, peer: str, suspected: bool) -> None:
        """Hold a peer for dead, or no longer; others it does not watch over."""
        if self._member.view.state.phase != "left" and peer in peers(self._member.topology, self.name):
            super().suspect(peer, suspected)

    def _told_of(self, source: str, fingerprint: str) -> None:
        """Somebody has switched: so may we."""
        switch = self._member.view.heard_from(source, fingerprint)
        if switch is not None and source in self._member.topology.homes:
            self.change(switch)

    def _handle(self, ready: Ready) -> None:
        topology = self._member.topology
        tagged: Any = tuple((peer, Versioned(topology.version, packet, topology.fingerprint)) for peer, packet in ready.send)
        super()._handle(msgspec.structs.replace(ready, send=tagged))

    def _transmit(self, peer: str, packet: Any) -> None:
        self._network.send(self.name, peer, packet, sum(frame.weight for frame in packet.packet.frames))

    def _perform(self, ready: Ready) -> None:
        super()._perform(ready)
        reply = self._replies.pop(id(ready), None)
        if reply is not None:
            reply[0](reply[1])

    def crash(self) -> None:
        """Lose also whom it was about to answer."""
        self._replies.clear()
        super().crash()

    def restart(self) -> None:
        """Come back, perhaps in the middle of a change."""
        super().restart()
        if self._member.view.state.phase == "holding":
            self._heard_at = self._kernel.now
            self._kernel.schedule(self.lease_ns, self._end_lease, self._life)


class Trouble(NamedTuple):
    """What goes wrong with commands."""

    loss: float = 0.1
    """Of questions, requests and answers."""
    death: float = 0.05
    """How likely a command dies in a round, and another one is started after a while."""
    second: float = 0.0
    """How likely there is a second command at the same time."""
    abort: float = 0.0
    """How likely the second one wants to go back."""
    mistaken: float = 0.3
    """How likely one that is declared lost is alive."""
    unforeseen: float = 0.0
    """How likely one that nobody wants to remove dies for good in the midst of the last change."""


TROUBLE: Final = Trouble()


class Command:
    """One run of the command, asking in rounds until all is done or it dies."""

    changeover_type = Coordinator

    def __init__(
        self,
        run: ReconfiguringSimulation,
        old: Topology,
        new: Topology,
        lost: tuple[str, ...] = (),
        *,
        second: bool = False,
        abort: bool = False,
    ) -> None:
        """Lead the nodes of ``run``. Nobody starts a ``second`` command again when it dies."""
        self.second = second
        self.new = new
        self._run = run
        self._lead = self.changeover_type(old, new, lost)
        self._abort = abort
        self._answers: dict[str, Standing] = {}
        self._reports: dict[str, tuple[Inventory, Mapping[MessageId, Envelope]]] = {}
        self._round = 0
        self._ends_at = run.kernel.now + TIMEOUT_NS

    def begin(self) -> None:
        """Ask everybody where it stands."""
        self._round += 1
        self._answers = {}
        for name in self._lead.members:
            self._run.post(name, partial(self._ask, self._round, name))
        self._run.kernel.schedule(ROUND_NS, self._decide)

    def _ask(self, asked: int, name: str, node: ReconfiguringNode) -> None:
        node.ask(partial(self._heard, asked, name), self._lead.attempt)

    def _heard(self, asked: int, name: str, standing: Standing) -> None:
        self._run.answer(lambda: self._note(asked, name, standing))

    def _note(self, asked: int, name: str, standing: Standing) -> None:
        if asked == self._round:
            self._answers[name] = standing

    def _decide(self) -> None:
        run, lead = self._run, self._lead
        self._round += 1  # What comes now comes too late.
        if run.finished or run.kernel.now > self._ends_at or run.chance.random() < run.trouble.death:
            run.died(self)
            return
        try:
            decision = lead.decide_abort(self._answers) if self._abort else lead.decide(self._answers, run.kernel.now)
        except UsageError:
            run.died(self)
            return
        if decision.done:
            run.done(self, aborted=self._abort)
            return
        if decision.flush:
            self._reports = {}
            for name in lead.members:
                run.post(name, partial(self._ask_report, name))
            run.kernel.schedule(ROUND_NS, self._flush, decision.flush)
            return
        for name, request in decision.requests.items():
            run.post(name, partial(_request, request))
        run.kernel.schedule(ROUND_NS, self.begin)

    def _ask_report(self, name: str, node: ReconfiguringNode) -> None:
        node.ask_report(lambda reported: self._run.answer(lambda: self._reports.update({name: reported})))

    def _flush(self, lacking: tuple[str, ...]) -> None:
        """All have said what they have: hand over what somebody lacks, in parts."""
        run, lead, reports = self._run, self._lead, self._reports
        if run.chance.random() < run.trouble.death:
            run.died(self)
            return
        if set(reports) == set(lead.members):
            found = settle(lead.lost, {name: report for name, (report, _) in reports.items()})
            run.counts["handed over"] += found.passed_on
            run.counts["given up"] += len(found.given_up)
            for name in lacking:
                envelopes = tuple(reports[found.holders[owed]][1][owed] for owed in found.owed[name])
                at = run.chance.randrange(len(envelopes) + 1)
                parts = ((0, envelopes[:at]), (at, envelopes[at:])) if at else ((0, envelopes),)
                for begin, some in parts:
                    flush = Flush(lead.attempt, found.list_id, begin, begin + len(some) == len(envelopes), some)
                    run.post(name, partial(_request, flush))
        run.kernel.schedule(ROUND_NS, self.begin)


def _request(request: ViewInput, node: ReconfiguringNode) -> None:
    node.change(request)


class ReconfiguringSimulation(Simulation):
    """A run through several versions of a fabric, one after the other; some may begin without members that are lost."""

    retain_bytes = MAX_RETAINED_BYTES

    def __init__(
        self,
        options: SimulationOptions,
        sink: Sink,
        versions: Sequence[Topology],
        trouble: Trouble = TROUBLE,
        *,
        losses: Mapping[int, tuple[str, ...]] | None = None,
        node_type: type[ReconfiguringNode] = ReconfiguringNode,
        command_type: type[Command] = Command,
        max_events: int = 3_000_000,
    ) -> None:
        """Begin with the first of ``versions`` and end with the last one; ``losses`` says which begin without whom."""
        self._versions = list(versions)
        super().__init__(options, sink, where=versions[0], node_type=node_type, max_events=max_events)
        self.trouble = trouble
        self.chance = Random(f"{options.seed}/commands")
        self.counts: Counter[str] = Counter()
        self._command_type = command_type
        self._losses = dict(losses or {})
        self.without: Callable[[Topology, tuple[str, ...]], Topology | None] | None = None
        """Gives the version that follows one if some are lost; nobody is lost unforeseen without it."""
        self._fate = Random(f"{options.seed}/unforeseen")
        self._decided: Topology | None = None
        """What was wanted before somebody was lost unforeseen: it may have been decided by then."""
        self._given_up: Topology | None = None
        """The same, for good: nobody starts a command for it again."""
        self.unforeseen: tuple[str, ...] = ()
        self.plan = [(version, self._losses.get(version.version, ())) for version in versions[1:]]
        """The versions that follow, and who is lost with each, as it turned out."""
        self._dying: dict[str, None] = {}
        """Of whom it is settled whether they die before they are lost."""
        for node in self.nodes.values():
            if isinstance(node, ReconfiguringNode):
                node.on_speaker_lost = self._speaks_though_lost
                node.on_switched = self._switched
        self.kernel.schedule(self.chance.randrange(1, self._span_ns()), self._lead)

    def _joining(self) -> Mapping[str, Topology]:
        first, *later = self._versions
        joining: dict[str, Topology] = {}
        for version in later:
            joining |= {name: version for name in version.processes if name not in first.homes and name not in joining}
        return joining

    @property
    def finished(self) -> bool:
        """Whether the last version is reached."""
        return len(self._versions) == 1

    def _node(self, name: str) -> ReconfiguringNode:
        node = self.nodes[name]
        assert isinstance(node, ReconfiguringNode)  # noqa: S101  Made above.
        return node

    # Who is suspected.

    def _known_to(self, node: Node) -> Topology:
        return node.member.topology

    def _switched(self, node: ReconfiguringNode) -> None:
        """It has other peers now, to look after and to be looked after by."""
        self.kernel.schedule(SUSPECT_AFTER_NS, self._look, node)

    def _look(self, node: ReconfiguringNode) -> None:
        self._watch(node)
        for other in self._peers(node):
            node.suspect(other.name, not other.up)

    def _schedule_suspicions(self) -> None:
        """Wrong ones: who stands for one relay with whom is known only then."""
        chance = Random(f"{self.options.seed}/suspicions")
        for _ in range(self.options.suspicions):
            self.kernel.schedule(chance.randrange(self._span_ns() + SUSPICIONS_NS), self._suspect_wrongly, chance)

    def _suspect_wrongly(self, chance: Random) -> None:
        groups = suspecting(self._versions[0])
        if not groups:
            return
        node, other = chance.sample(chance.choice(groups), 2)
        self._suspect(self.nodes[node], other, True)
        self.kernel.schedule(chance.randrange(1_000_000, 1_000_000_000), self._suspect, self.nodes[node], other, False)

    # What commands do.

    def _lead(self) -> None:
        self._find_decided()
        if self.finished:
            return
        old, new = self._versions[:2]
        lost = self._losses.get(new.version, ())
        for name in lost:
            self._lose(self.nodes[name])
        self._draw_fate(new)
        self.counts["commands"] += 1
        self._command_type(self, old, new, lost).begin()
        if self.chance.random() < self.trouble.second:
            other = self._command_type(self, old, new, lost, second=True, abort=self.chance.random() < self.trouble.abort)
            self.kernel.schedule(self.chance.randrange(PAUSE_NS), other.begin)

    def _lose(self, node: Node) -> None:
        """A process is about to be declared lost: it dies, before that or meanwhile, or lives on and is suspected."""
        if node.name in self._dying:
            return
        self._dying[node.name] = None
        if self.chance.random() < self.trouble.mistaken:
            self.counts["servers lost by mistake"] += 1
        else:
            self.counts["servers lost"] += 1
            self.kernel.schedule(self.chance.randrange(PAUSE_NS) if self.chance.random() < 0.5 else 0, self._die, node)

    # Who is lost unforeseen.

    def _draw_fate(self, new: Topology) -> None:
        if self.without is None or len(self._versions) > 2 or self._fate.random() >= self.trouble.unforeseen:
            return
        name = self._fate.choice(self._versions[0].processes)
        self.kernel.schedule(self._fate.randrange(1, PAUSE_NS), self._lose_unforeseen, name, new)

    def _lose_unforeseen(self, name: str, new: Topology) -> None:
        """Somebody is gone, or held to be; from now on, or a little later, people want something else."""
        old, lost = self._versions[0], self._losses.get(new.version, ())
        if self.finished or self.without is None or self.unforeseen or self._versions[1] is not new or name in lost:
            return
        instead = self.without(old, tuple(sorted((*lost, name))))
        after = self.without(new, (name,)) if name in new.homes else new
        if instead is None or after is None or any(one not in old.homes for one in new.processes):
            return
        if instead.fingerprint == new.fingerprint:
            return  # It was about to leave, and nobody could tell from the end whether it did or was lost.
        self.counts["servers lost unforeseen"] += 1
        self._lose(self.nodes[name])
        self.unforeseen, self._decided, self._given_up = (name,), new, new
        self._want(old, instead, tuple(sorted((*lost, name))))
        self.kernel.schedule(self._fate.randrange(PAUSE_NS), self._lead)

    def _want(self, old: Topology, new: Topology, lost: tuple[str, ...]) -> None:
        self._versions, self._losses[new.version] = [old, new], lost
        self.plan[-1] = (new, lost)

    def _find_decided(self) -> None:
        """If those who are left have all gone on to what was wanted before, go on from there."""
        decided, lost = self._decided, self._losses.get(self._versions[-1].version, ())
        if decided is None or self.finished or self.without is None:
            return
        if any(self._reached(name) != decided.fingerprint for name in self._versions[0].processes if name not in lost):
            return
        self.counts["changes"] += 1
        self.counts["finished without one who was lost"] += 1
        self._decided, foreseen = None, tuple(name for name in lost if name not in self.unforeseen)
        self.plan[-1] = (decided, foreseen)
        self._losses[decided.version] = foreseen
        self._versions, self.topology = [decided], decided
        following = self.without(decided, self.unforeseen) if self.unforeseen[0] in decided.homes else None
        if following is not None:
            self.plan.append((following, self.unforeseen))
            self._want(decided, following, self.unforeseen)

    def _speaks_though_lost(self, name: str, version: int) -> None:
        self.kernel.schedule(self.chance.randrange(1, MAX_DELAY_NS), self._posted, name, partial(_request, Expel(version)))

    def _attempt(self, node: Node, to: tuple[str, ...] | None) -> None:
        if not node.dead:
            super()._attempt(node, to)

    def post(self, name: str, act: Callable[[ReconfiguringNode], None]) -> None:
        """Let something reach a node, if it does."""
        if self.chance.random() >= self.trouble.loss:
            self.kernel.schedule(self.chance.randrange(MAX_DELAY_NS), self._posted, name, act)

    def _posted(self, name: str, act: Callable[[ReconfiguringNode], None]) -> None:
        node = self._node(name)
        if node.up:
            act(node)

    def answer(self, act: Callable[[], None]) -> None:
        """Let an answer reach its command, if it does."""
        if self.chance.random() >= self.trouble.loss:
            self.kernel.schedule(self.chance.randrange(MAX_DELAY_NS), act)

    def died(self, command: Command) -> None:
        """A command is gone; another one is started after a while."""
        self.counts["deaths"] += 1
        if not self.finished and not command.second and command.new is not self._given_up:
            self.kernel.schedule(self.chance.randrange(1, PAUSE_NS), self._lead)

    def done(self, command: Command, *, aborted: bool) -> None:
        """A command has done what it was for."""
        if aborted:
            self.counts["aborted"] += 1
            return
        lost = self._losses.get(self._versions[1].version, ()) if len(self._versions) > 1 else ()
        if len(self._versions) > 1 and all(self._arrived(name) for name in self._versions[0].processes if name not in lost):
            self.counts["changes"] += 1
            del self._versions[0]
            self.topology = self._versions[0]
            for name in lost:
                for later_ns in CALLS_NS:
                    self.kernel.schedule(later_ns, self._speaks_though_lost, name, self._versions[0].version)
        if not command.second and command.new is not self._given_up:
            self.kernel.schedule(self.chance.randrange(1, PAUSE_NS), self._lead)

    def _arrived(self, name: str) -> bool:
        return self._reached(name) == self._versions[1].fingerprint

    def _reached(self, name: str) -> str:
        """Return which topology a process has, or with which one it has left."""
        standing = self._node(name).member.standing()
        return standing.next_fingerprint if standing.phase == "left" else standing.fingerprint

    def standings(self) -> Mapping[str, Standing]:
        """Return where everybody stands."""
        return {name: self._node(name).member.standing() for name in self.names}
