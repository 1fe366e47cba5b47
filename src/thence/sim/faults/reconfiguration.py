"""Changes of the topology under way, led by a command that may die, come again, or be there twice.

Rules:

* The command and the members do what they do in a running fabric: the same ``core.reconfig.coordinator`` decides, the same
  ``core.reconfig.protocol`` answers.
* A member suspects peers of the version that it has, and begins anew when it switches.
* A change may be made without members that are *lost*: dead, or suspected by mistake. One that still speaks or calls is told
  by whom it speaks to, as a server is when it is refused.
* A member may also be lost *unforeseen*, at any moment of the last change, dead or by mistake. From then on people want another
  version: the one in force without it, or, if the change turns out to be decided, what follows that one without it.
* With ``following`` people decide on each change when the one before is done, knowing who is dead by then. Members who are not
  missed (``sim.faults.failures``) die at any moment, also while a change is under way. Such a change goes on without the dead
  if it does not concern them; otherwise people want the version in force without them, as above.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

from thence.core.reconfig.coordinator import Coordinator
from thence.core.reconfig.flush import settle
from thence.core.reconfig.protocol import Expel, Flush, Standing, ViewInput
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.errors import UsageError
from thence.sim.fabric import Fabric
from thence.sim.faults.failures import Failures, missed_by_nobody
from thence.sim.faults.introductions import MAX_DELAY_NS, Introductions
from thence.sim.node import SimulatedNode
from thence.sim.parts.participant import Participant, Report

PAUSE_NS: Final = 1_500_000_000
"""How long nobody leads after a command died, at most."""

ROUND_NS: Final = 60_000_000
"""How long a command waits for answers, and then for what it asked for to be done."""

TIMEOUT_NS: Final = 15_000_000_000
"""How long a command tries, as the real one does with ``--timeout``: one that leads and one that aborts could go on for ever."""

LEFT_ALONE: Final = 0.7
"""How often people do nothing about a death that does not concern the change under way."""

ACT_AFTER_NS: Final = 5_000_000_000
"""When they do something all the same, if the change is still under way."""

TWO_AT_ONCE: Final = 0.3
"""How often somebody else dies at the same moment, where that may be."""

SENDING: Final = 0.8
"""How often one dies that others lack something of, if there is one."""

CALLS_NS: Final = (1_000_000_000, 4_000_000_000)
"""When one that lives on though it was lost calls its old peers, if it has nothing else to say."""


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


class ChangeCommand:
    """One run of the command, asking in rounds until all is done or it dies."""

    coordinator_type = Coordinator

    def __init__(
        self,
        run: ReconfigurationFaults,
        old: Topology,
        new: Topology,
        lost: tuple[str, ...] = (),
        *,
        second: bool = False,
        abort: bool = False,
    ) -> None:
        """Lead the processes of ``run``. Nobody starts a ``second`` command again when it dies."""
        self.second = second
        self.new = new
        self._run = run
        self._lead = self.coordinator_type(old, new, lost)
        self._abort = abort
        self._answers: dict[str, Standing] = {}
        self._reports: dict[str, Report] = {}
        self._round = 0
        self._ends_at = run.kernel.now + TIMEOUT_NS

    @property
    def absent(self) -> tuple[str, ...]:
        """Who is left out."""
        return self._lead.absent

    def begin(self) -> None:
        """Ask everybody where it stands."""
        self._round += 1
        self._answers = {}
        for name in self._lead.members:
            self._run.post(name, partial(self._ask, self._round, name))
        self._run.kernel.schedule(ROUND_NS, self._decide)

    def _ask(self, asked: int, name: str, node: Participant) -> None:
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
            run.post(name, _asking(request))
        run.kernel.schedule(ROUND_NS, self.begin)

    def _ask_report(self, name: str, node: Participant) -> None:
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
                    run.post(name, _asking(flush))
        run.kernel.schedule(ROUND_NS, self.begin)


class Changes(NamedTuple):
    """What is to change in a run: the versions of the topology, one after the other, and what goes wrong with commands."""

    versions: Sequence[Topology]
    trouble: Trouble = Trouble()
    losses: Mapping[int, tuple[str, ...]] = {}
    """Which versions begin without whom."""
    without: Callable[[Topology, tuple[str, ...]], Topology | None] | None = None
    """Gives the version that follows one if some are lost; nobody is lost unforeseen without it."""
    command_type: type[ChangeCommand] = ChangeCommand
    """For planted mistakes."""
    following: Callable[[Topology, tuple[str, ...]], tuple[Topology, tuple[str, ...]] | None] | None = None
    """Gives what people want next, of the version in force and of who is dead in it, and who is declared lost; None: no more."""
    spares: tuple[str, ...] = ()
    """Who may join with what follows."""

    @property
    def joining(self) -> dict[str, Topology]:
        """The processes that come in with a later version, and that version."""
        first, *later = self.versions
        joining: dict[str, Topology] = {}
        for version in later:
            joining |= {name: version for name in version.processes if name not in first.homes and name not in joining}
        return joining


class ReconfigurationFaults:
    """The changes of one run, as they turn out."""

    def __init__(self, fabric: Fabric, failures: Failures, changes: Changes) -> None:
        """Let all processes take part, and start the first command after a while."""
        seed = fabric.options.seed
        self.kernel = fabric.kernel
        self.trouble = changes.trouble
        self.chance = Random(f"{seed}/commands")
        self.counts: Counter[str] = Counter()
        self.unforeseen: tuple[str, ...] = ()
        """Who was lost though nobody wanted to remove it."""
        self.plan = [(version, changes.losses.get(version.version, ())) for version in changes.versions[1:]]
        """The versions that follow, and who is lost with each, as it turned out."""
        self._fabric = fabric
        self._failures = failures
        self._versions = list(changes.versions)
        """The one in force, and those that follow."""
        self._losses = dict(changes.losses)
        self._without = changes.without
        self._following = changes.following
        self._command_type = changes.command_type
        self._fate = Random(f"{seed}/unforeseen")
        self.introductions = Introductions(fabric, failures, self._expel_later)
        self._decided: Topology | None = None
        """What was wanted before somebody was lost unforeseen: it may have been decided by then."""
        self._foreseen: tuple[str, ...] = ()
        """Who was to be lost with it."""
        self._given_up: list[Topology] = []
        """All such, for good: nobody starts a command for them again."""
        self._dying: dict[str, None] = {}
        """Of whom it is settled whether they die before they are lost."""
        for node in fabric.nodes.values():
            self.introductions.enlist(node)
        self.kernel.schedule(self.chance.randrange(1, fabric.options.span_ns), self._lead)
        if self._following is not None:
            UnmissedDeaths(self, fabric, failures, Random(f"{seed}/unmissed"))

    @property
    def finished(self) -> bool:
        """Whether the last version is reached."""
        return len(self._versions) == 1 and self._following is None

    def _lead(self) -> None:
        self._find_decided()
        if len(self._versions) == 1:
            self._want_more()
        if self.finished:
            return
        old, new = self._versions[:2]
        lost = self._losses.get(new.version, ())
        for name in lost:
            self._lose(self._fabric.nodes[name])
        self._draw_fate(new)
        self.counts["commands"] += 1
        self._command_type(self, old, new, lost).begin()
        if self.chance.random() < self.trouble.second:
            other = self._command_type(self, old, new, lost, second=True, abort=self.chance.random() < self.trouble.abort)
            self.kernel.schedule(self.chance.randrange(PAUSE_NS), other.begin)

    def _want_more(self) -> None:
        """People decide what comes next, if anything does."""
        (now,) = self._versions
        found = None if self._following is None else self._following(now, self._failures.gone(now))
        if found is None:
            self._following = None
            return
        new, lost = found
        for name in new.processes:
            if name not in self._fabric.nodes:
                self._fabric.add(name, Routes(new))
                self.introductions.enlist(self._fabric.nodes[name])
        self.plan.append((new, lost))
        self._want(now, new, lost)

    def _lose(self, node: SimulatedNode) -> None:
        """A process is about to be declared lost: it dies, before that or meanwhile, or lives on and is suspected."""
        if node.name in self._dying or node.name in self._failures.dead:
            return
        self._dying[node.name] = None
        if self.chance.random() < self.trouble.mistaken:
            self.counts["servers lost by mistake"] += 1
        else:
            self.counts["servers lost"] += 1
            self.kernel.schedule(self.chance.randrange(PAUSE_NS) if self.chance.random() < 0.5 else 0, self._failures.die, node)

    # Who is lost unforeseen.

    def _draw_fate(self, new: Topology) -> None:
        if self._without is None or len(self._versions) > 2 or self._fate.random() >= self.trouble.unforeseen:
            return
        name = self._fate.choice(self._versions[0].processes)
        self.kernel.schedule(self._fate.randrange(1, PAUSE_NS), self._lose_unforeseen, name, new)

    def _lose_unforeseen(self, name: str, new: Topology) -> None:
        """Somebody is gone, or suspected; from now on, or a little later, people want something else."""
        old, lost = self._versions[0], self._losses.get(new.version, ())
        if self.finished or self._without is None or self.unforeseen or self._versions[1] is not new or name in lost:
            return
        instead = self._without(old, tuple(sorted((*lost, name))))
        after = self._without(new, (name,)) if name in new.homes else new
        if instead is None or after is None or any(one not in old.homes for one in new.processes):
            return
        if instead.fingerprint == new.fingerprint:
            return  # It was about to leave, and nobody could tell from the end whether it did or was lost.
        self.counts["servers lost unforeseen"] += 1
        self._lose(self._fabric.nodes[name])
        self.unforeseen, self._decided, self._foreseen = (name,), new, lost
        self._given_up.append(new)
        self._want(old, instead, tuple(sorted((*lost, name))))
        self.kernel.schedule(self._fate.randrange(PAUSE_NS), self._lead)

    @property
    def under_way(self) -> tuple[Topology, Topology, tuple[str, ...]]:
        """The version in force, the one that is to follow, and who is lost with it; twice the same where nothing is wanted."""
        old, new = self._versions[0], self._versions[:2][-1]
        return old, new, self._losses.get(new.version, ()) if new is not old else ()

    @property
    def in_doubt(self) -> bool:
        """Whether people gave up a change that may have been decided, and are not through with what they wanted instead."""
        return self._decided is not None

    def without(self, topology: Topology, gone: Collection[str]) -> Topology | None:
        """Return the version that follows if these are gone for good; None if there is none."""
        return None if self._without is None else self._without(topology, tuple(sorted(gone)))

    def give_up(self, instead: Topology, gone: tuple[str, ...]) -> None:
        """People want this instead of the change under way, since more are gone."""
        old, new, lost = self.under_way
        self._decided, self._foreseen = new, lost
        self._given_up.append(new)
        self._want(old, instead, gone)
        self.kernel.schedule(self._fate.randrange(PAUSE_NS), self._lead)

    def _want(self, old: Topology, new: Topology, lost: tuple[str, ...]) -> None:
        self._versions, self._losses[new.version] = [old, new], lost
        self.plan[-1] = (new, lost)

    def _find_decided(self) -> None:
        """If those who are left have all gone on to what was wanted before, go on from there."""
        decided, lost = self._decided, self._losses.get(self._versions[-1].version, ())
        if decided is None or self.finished or self._without is None:
            return
        if any(self._reached(name) != decided.fingerprint for name in self._versions[0].processes if name not in lost):
            return
        self.counts["changes"] += 1
        self.counts["finished without one who was lost"] += 1
        self._decided, foreseen = None, self._foreseen
        self.plan[-1] = (decided, foreseen)
        self._losses[decided.version] = foreseen
        self._versions, self._fabric.topology = [decided], decided
        if not self.unforeseen:
            return  # People will see who is dead when they want something else.
        following = self._without(decided, self.unforeseen) if self.unforeseen[0] in decided.homes else None
        if following is not None:
            self.plan.append((following, self.unforeseen))
            self._want(decided, following, self.unforeseen)

    def _expel_later(self, name: str, version: int) -> None:
        self.kernel.schedule(self.chance.randrange(1, MAX_DELAY_NS), self._posted, name, _asking(Expel(version)))

    def post(self, name: str, act: Callable[[Participant], None]) -> None:
        """Let something reach a process, if it does."""
        if self.chance.random() >= self.trouble.loss:
            self.kernel.schedule(self.chance.randrange(MAX_DELAY_NS), self._posted, name, act)

    def _posted(self, name: str, act: Callable[[Participant], None]) -> None:
        node = self._fabric.nodes[name]
        if node.up and not node.fenced and node.participant is not None:
            act(node.participant)

    def answer(self, act: Callable[[], None]) -> None:
        """Let an answer reach its command, if it does."""
        if self.chance.random() >= self.trouble.loss:
            self.kernel.schedule(self.chance.randrange(MAX_DELAY_NS), act)

    def died(self, command: ChangeCommand) -> None:
        """A command is gone; another one is started after a while."""
        self.counts["deaths"] += 1
        if not self.finished and not command.second and command.new not in self._given_up:
            self.kernel.schedule(self.chance.randrange(1, PAUSE_NS), self._lead)

    def done(self, command: ChangeCommand, *, aborted: bool) -> None:
        """A command has done what it was for."""
        if aborted:
            self.counts["aborted"] += 1
            return
        lost = self._losses.get(self._versions[1].version, ()) if len(self._versions) > 1 else ()
        if len(self._versions) > 1 and all(
            self._arrived(name) for name in self._versions[0].processes if name not in lost and name not in command.absent
        ):
            self.counts["left out"] += len(command.absent)
            self.counts["changes"] += 1
            del self._versions[0]
            self._decided = None
            self._fabric.topology = self._versions[0]
            for name in lost:
                for later_ns in CALLS_NS:
                    self.kernel.schedule(later_ns, self._expel_later, name, self._versions[0].version)
        if not command.second and command.new not in self._given_up:
            self.kernel.schedule(self.chance.randrange(1, PAUSE_NS), self._lead)

    def _arrived(self, name: str) -> bool:
        return self._reached(name) == self._versions[1].fingerprint

    def _reached(self, name: str) -> str:
        """Return which topology a process has, or with which one it has left."""
        standing = self._fabric.nodes[name].member.reconfigurer.standing()
        return standing.next_fingerprint if standing.phase == "left" else standing.fingerprint

    def standings(self) -> Mapping[str, Standing]:
        """Return where everybody stands."""
        return {name: self._fabric.nodes[name].member.reconfigurer.standing() for name in self._fabric.names}


def _asking(request: ViewInput) -> Callable[[Participant], None]:
    return lambda participant: participant.change(request)


class UnmissedDeaths:
    """Deaths of those without whom the others can go on, at any moment of a change, and what people do about them."""

    def __init__(self, run: ReconfigurationFaults, fabric: Fabric, failures: Failures, chance: Random) -> None:
        """Let as many die as the options say, as far as there is anybody."""
        self._run = run
        self._fabric = fabric
        self._failures = failures
        self._chance = chance
        self._deaths: list[tuple[int, str]] = []
        for _ in range(fabric.options.deaths):
            later_ns = PAUSE_NS if chance.random() < 0.5 else 0  # Half of them while applications still send.
            fabric.kernel.schedule(chance.randrange(1, fabric.options.span_ns + later_ns), self._die)

    def _die(self) -> None:
        """Let somebody die for good, and perhaps a second one at the same moment."""
        run, kernel, chance = self._run, self._fabric.kernel, self._chance
        if run.in_doubt:  # People are busy with those who died before.
            kernel.schedule(PAUSE_NS, self._die)
            return
        old, new, _ = run.under_way
        for _ in range(2 if chance.random() < TWO_AT_ONCE else 1):
            able = self._able()
            if not able:
                break
            name = chance.choice(self._sending(able) or able)
            run.counts["died unmissed"] += 1
            run.counts["died during a change"] += new is not old
            self._failures.dead[name] = None
            self._deaths.append((kernel.now, name))
            self._failures.die(self._fabric.nodes[name])
        if new is not old:  # A change that does not concern the dead may be over before somebody has to do something.
            soon = self._concerned() or chance.random() >= LEFT_ALONE
            kernel.schedule(chance.randrange(1, PAUSE_NS) if soon else ACT_AFTER_NS, self._notice, new)

    def _able(self) -> list[str]:
        """Return who may die now: in the version in force as in the one that is to follow."""
        run, dead = self._run, self._failures.dead
        old, new, lost = run.under_way
        gone = {*dead, *lost}
        able = [(version.homes, missed_by_nobody(version, gone, self._fabric.kernel.now, self._deaths)) for version in (old, new)]
        found = [name for name in able[0][1] if all(name in one or name not in homes for homes, one in able)]
        together = {*self._failures.gone(old), *lost}
        return [name for name in found if run.without(old, {*together, name}) is not None]

    def _sending(self, able: list[str]) -> list[str]:
        """Return which of them others lack something of, as a rule: what they sent last is what survivors may lack."""
        if self._chance.random() >= SENDING:
            return []
        unacked = {name: self._fabric.nodes[name].member.attachment.unacked() for name in able}
        return [name for name in able if any(unacked[name].values())]

    def _concerned(self) -> bool:
        old, new, lost = self._run.under_way
        dead = [name for name in self._failures.gone(old) if name not in lost]
        return bool(dead) and not Coordinator(old, new, lost).may_miss(dead)

    def _notice(self, seen: Topology) -> None:
        """People see who is dead, and want the version in force without them."""
        old, new, lost = self._run.under_way
        gone = tuple(sorted({*lost, *self._failures.gone(old)}))
        instead = self._run.without(old, gone)
        if new is seen and new is not old and gone != lost and instead is not None:
            self._run.counts["changes given up for the dead"] += 1
            self._run.give_up(instead, gone)
