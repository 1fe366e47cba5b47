"""How a member takes part in a change of its fabric: from one topology to the next, with nothing lost, doubled or out of order.

Design note: docs/how-to/reconfiguration.md. Source: daisy §3.1.1 (groups split, merge and take members while messages are sent).

A member is in one of five phases:

* *normal*: nothing is going on.
* *holding*: what the application submits is accepted and written down, and waits. What is on its way goes on. A member that the
  change does not concern (``core.reconfig.concern``) takes part, and its application goes on as usual.
* *prepared*: everybody holds and nothing is on its way any more, so the change may be decided at any moment.
* *flushed*: only where members were lost: we have been given what we lacked of them, and deliver it at the switch.
* *left*: the new topology has no place for this member.

From *prepared* a member *switches*: it makes new places for the new topology, with fresh clocks, tells its application of the new
view, sends what waited, in order, and is normal again. It keeps its message numbers, its deliveries and their positions.

Rules:

* In what is replaced nothing is on its way when the first one switches, so all from before is delivered there before anything
  from after is sent. ``core.reconfig.coordinator`` says how that is found out, and why no two members can decide differently.
* What goes on as it is does not stop. A message that comes out of it at a member that holds, and is to go into what is replaced,
  waits there at the *border* (``core.reconfig.border``), before all that the application submits.
* Every attempt at a change has a number. A member holds for one attempt after the other, with ever higher numbers, so that one
  that has left an attempt can never be in it again.
* A member that holds may go back by itself. One that is prepared may not, unless somebody has seen that the attempt is dead.
* Members that are *lost*, gone for good, are named by whoever leads the change, never found out by time. From the hold on nothing
  is taken from them, and from being prepared on nothing from anybody: so all survivors can compare what they have
  (``core.reconfig.flush``), be given what they lack, and switch only when all have been.
* A member that is prepared, or flushed, may be *barred*: told that members whom its attempt counts on are lost by now. From then
  on it switches only on the word of one who has seen a member that is not among them switch, and who names the same as lost. So
  survivors can leave such an attempt together, or finish it (``core.reconfig.coordinator``).
* A member that the change does not concern may be *absent*: it has no part in an attempt, and later *follows* those who have
  switched, on the word of one of them. All that take part are more than half, so two attempts have a member in common, and never
  lead to two topologies. Who was barred never follows those whom it was told to be lost.
* Each step is a record, so a restart finds the phase again, what waits, and the topology.
* A packet is only handed to a member that has the same version of the topology as its sender: whoever connects them sees to it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

import msgspec

from thence.core.reconfig.concern import Comparison, why_everybody
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.topology.toml import parse, write
from thence.core.wire.messages import Envelope, weight_of
from thence.core.wire.records import Changed, Owed
from thence.errors import Busy, ConfigError, UsageError

Phase = Literal["normal", "holding", "prepared", "flushed", "left"]


class Hold(NamedTuple):
    """Let what the application submits wait from now on: ``topology`` is to follow. Only for an attempt of a higher number."""

    attempt: int
    topology: Topology
    lost: tuple[str, ...] = ()
    """Members of the topology in force that are gone for good."""
    limited: bool = False
    """Whether only those hold whom the change concerns."""
    absent: tuple[str, ...] = ()
    """Who has no part in the attempt; the change concerns none of them."""


class Prepare(NamedTuple):
    """Nothing is on its way anywhere: do not go back by yourself any more."""

    attempt: int


class Flush(NamedTuple):
    """All survivors are prepared: here is a part of what this member lacks, in the order in which it is to be delivered."""

    attempt: int
    list_id: str
    """Of the whole list: two who lead the change may cut it differently, or have come to different ones."""
    at: int
    """How much of the list comes before this part; with 0 it begins anew."""
    last: bool
    envelopes: tuple[Envelope, ...]


class BarLost(NamedTuple):
    """These are lost by now: do not switch in this attempt unless one who is not among them has."""

    attempt: int
    """0: we had no part in it, and are never to follow them."""
    lost: tuple[str, ...]


class Switch(NamedTuple):
    """All are prepared, or flushed where some were lost, or somebody has switched: switch.

    ``greetings`` are sent, to everyone, before all that waited.
    """

    attempt: int
    greetings: tuple[bytes, ...] = ()
    without: tuple[str, ...] = ()
    """Somebody who is none of these has switched: whoever is barred switches only if these are the ones it was told of."""


class Resume(NamedTuple):
    """Go back to normal. ``dead``: somebody has left the attempt, or all are barred, so nobody can switch in it, not even those
    prepared."""

    attempt: int
    dead: bool = False


class Expel(NamedTuple):
    """Others have gone on to this version without us: we were declared lost."""

    version: int


class Follow(NamedTuple):
    """Others have gone on to this topology, in which nothing changes for us: so do we."""

    topology: Topology
    peers: tuple[str, ...]
    """Who have gone on."""
    greetings: tuple[bytes, ...] = ()
    """As with a switch."""


ViewInput = Hold | Prepare | Flush | BarLost | Switch | Resume | Expel | Follow


class NewView(msgspec.Struct, frozen=True):
    """The fabric has changed: told to applications in the order of their deliveries, between what is of the old version and what
    is of the new one."""

    version: int
    members: tuple[str, ...]
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Who has left, those who were lost not among them."""
    lost: tuple[str, ...] = ()

    @classmethod
    def between(cls, old: Topology, following: Topology, lost: tuple[str, ...]) -> NewView:
        """Return the news of a switch from one topology to the next."""
        joined = tuple(name for name in following.processes if name not in old.homes)
        left = tuple(name for name in old.processes if name not in following.homes and name not in lost)
        return cls(following.version, following.processes, joined, left, lost)


FABRIC = ""
"""The origin of what no member has sent: the news of a view."""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Where a member stands, for whoever leads a change."""

    version: int
    fingerprint: str
    phase: Phase
    attempt: int
    """The newest attempt that it has taken part in; 0: none."""
    next_version: int
    next_fingerprint: str
    """What it holds for, or has left with; empty: nothing."""
    idle: bool
    """Whether nothing that it has sent or taken is still on its way."""
    moved: tuple[int, int]
    """How many frames it has sent, and how many taken, in this version."""
    waiting: int
    """How many submissions wait."""
    trouble: str = ""
    """What is still on its way, in words."""
    lost: tuple[str, ...] = ()
    """Whom it holds without."""
    barred: tuple[str, ...] = ()
    """Of whom it was told, while it was prepared, that they are lost."""
    forgetful: tuple[str, ...] = ()
    """Peers with which it does not go on, since they have forgotten what they had acknowledged; itself, if it may have."""
    store: str = ""
    """On which store it runs, if it says so."""
    met: tuple[tuple[str, str], ...] = ()
    """On which stores those ran whom it has met."""
    limited: bool = False
    """Whether only those hold with it whom the change concerns."""
    absent: tuple[str, ...] = ()
    """Who has no part in the attempt."""
    disowned: tuple[str, ...] = ()
    """Of whom it was ever told, when it was barred, that they are lost."""


class ViewState(msgspec.Struct, array_like=True):
    """Everything that a restart must find again."""

    phase: Phase = "normal"
    attempt: int = 0
    next_text: str = ""
    """The topology to follow, unless the phase is normal."""
    text: str = ""
    """The topology in force, if it is another one than the member was made with."""
    waiting: list[Envelope] = msgspec.field(default_factory=list)
    previous: str = ""
    """The topology before the one in force: a command that comes late learns from it who has left."""
    lost: tuple[str, ...] = ()
    """Who is gone for good, as far as the hold says."""
    owed: list[Envelope] = msgspec.field(default_factory=list)
    """What we lacked of their messages, to be delivered at the switch."""
    list_id: str = ""
    """Of which list ``owed`` is, which may not be here in full."""
    gone: dict[str, int] = msgspec.field(default_factory=dict)
    """All who were ever lost, and with which version."""
    departed: dict[str, int] = msgspec.field(default_factory=dict)
    """All who have left, and with which version."""
    barred: tuple[str, ...] = ()
    """Who is lost by now of those with whom we were prepared; empty: we may switch."""
    kept: tuple[str, ...] | None = None
    """Which of our places outlive the change; None: none does, and it concerns everybody."""
    untouched: bool = False
    """Whether it does not concern us."""
    absent: tuple[str, ...] = ()
    """Who has no part in the attempt."""
    disowned: tuple[str, ...] = ()
    """Whom we never follow: when we were barred they were lost."""
    since: int = 0
    """With which version of the topology we came in, if not with the first one."""

    @property
    def paused(self) -> bool:
        """Whether submissions wait."""
        return self.phase in ("holding", "prepared", "flushed") and not self.untouched

    @property
    def comparing(self) -> bool:
        """Whether survivors compare what they have, so that it must not change."""
        return bool(self.lost) and self.phase in ("prepared", "flushed")


class View:
    """One member's part in changes. The member itself makes the new places."""

    def __init__(self, since: int = 0) -> None:
        """Nothing is going on; we came in with a version, if not with the first one."""
        self.state = ViewState(since=since)
        self.next: Topology | None = None
        self.waiting_bytes = 0
        self._routes: Routes | None = None
        """The ways in the topology to follow, once somebody has asked."""

    @property
    def holding(self) -> bool:
        """Whether we take part in a change."""
        return self.state.phase in ("holding", "prepared", "flushed")

    @property
    def ready(self) -> bool:
        """Whether a switch may come at any moment, were we not barred."""
        return self.state.phase == ("flushed" if self.state.lost else "prepared")

    def may_switch(self, change: Switch) -> bool:
        """Whether this is a switch that may be."""
        state = self.state
        return self.ready and state.attempt == change.attempt and (not state.barred or change.without == state.barred)

    def heard_from(self, peer: str, fingerprint: str) -> Switch | None:
        """Return the switch that follows from a peer being there already; None if none does."""
        following = self.next
        if not self.ready or following is None or following.fingerprint != fingerprint or peer in self.state.barred:
            return None
        return Switch(self.state.attempt, without=self.state.barred)

    def deaf_to(self, peer: str) -> bool:
        """Whether nothing is taken from a peer: it is lost, or survivors compare what they have."""
        return peer in self.state.lost or (bool(self.state.lost) and self.state.phase != "holding")

    # What may be asked for, and what follows as a record.

    def hold(self, change: Hold, now: Topology, me: str) -> Changed | None:
        """Return the record of a hold that may be; None if it is in force already."""
        state = self.state
        self._check("hold")
        same = self.next is not None and self.next.fingerprint == change.topology.fingerprint and change.lost == state.lost
        same = same and (change.limited, change.absent) == (state.kept is not None, state.absent)
        if change.attempt == state.attempt and self.holding and same:
            return None
        check_successor(now, change.topology)
        check_lost(now, change.topology, change.lost)
        for name in change.topology.processes:
            if name in state.gone:
                raise UsageError(f"{name!r} was lost with version {state.gone[name]}: a name is not used again")
            if name in state.departed:  # Its messages would be numbered from 1 again, and look like old ones.
                raise UsageError(f"{name!r} has left with version {state.departed[name]}: a name is not used again")
        if self.holding and (not self.next or self.next.fingerprint != change.topology.fingerprint or change.lost != state.lost):
            other = self.next
            raise UsageError(
                f"there is a hold for version {other.version if other else '?'} with fingerprint "
                f"{other.fingerprint if other else '?'}{_without(state.lost)}; "
                f"{change.topology.fingerprint}{_without(change.lost)} is another one"
            )
        if state.phase in ("prepared", "flushed"):
            raise UsageError(f"prepared in attempt {state.attempt}: it must be finished, or be known to be dead")
        if change.attempt <= state.attempt:
            raise UsageError(f"attempt {change.attempt} comes too late: there was attempt {state.attempt}")
        return _held(change, now, me)

    def prepare(self, change: Prepare) -> Changed | None:
        """Return the record of being prepared."""
        self._check("prepare", change.attempt)
        return Changed("prepared", change.attempt) if self.state.phase == "holding" else None

    def flush(self, change: Flush) -> Owed | None:
        """Return the record of messages that we lacked; None if we have all of them already."""
        self._check("flush", change.attempt)
        state = self.state
        if not state.lost or state.phase == "holding":
            raise UsageError(f"not prepared in attempt {change.attempt} without somebody: nobody can know what is missing here")
        if state.phase == "flushed":
            return None
        if change.at and (change.list_id, change.at) != (state.list_id, len(state.owed)):
            raise UsageError(
                f"a part of list {change.list_id} from {change.at} on of what is missing here, where that of "
                f"{state.list_id or 'none'} from {len(state.owed)} on should come"
            )
        return Owed(change.attempt, change.list_id, change.at, change.last, change.envelopes)

    def bar(self, change: BarLost, me: str) -> Changed | None:
        """Return the record of being barred; None if we are, with the same ones."""
        state = self.state
        if not change.attempt and state.phase in ("normal", "holding"):
            lost = tuple(sorted({*state.disowned, *change.lost}))
            return Changed("barred", state.attempt, "", (), lost) if lost != state.disowned else None
        self._check("bar", change.attempt)
        if state.phase == "holding":
            raise UsageError(f"not prepared in attempt {change.attempt}: it can be left")
        if me in change.lost:
            raise UsageError(f"{me!r} is not lost")
        if not set(change.lost) > set(state.lost):
            raise UsageError(f"attempt {change.attempt} goes on{_without(state.lost)} already: nobody else is lost")
        if not set(change.lost) >= set(state.barred):
            raise UsageError(f"barred{_without(state.barred)}, and nobody who was declared lost is taken back")
        return Changed("barred", change.attempt, "", (), change.lost) if change.lost != state.barred else None

    def switch(self, change: Switch, greetings: tuple[Envelope, ...]) -> Changed:
        """Return the record of a switch."""
        self._check("switch", change.attempt)
        if not self.ready:
            raise UsageError(f"not prepared in attempt {change.attempt}: nobody can have decided to switch")
        if not self.may_switch(change):
            raise UsageError(f"barred{_without(self.state.barred)} in attempt {change.attempt}: the others may have gone back")
        return Changed("switched", change.attempt, "", greetings)

    def resume(self, change: Resume) -> Changed | None:
        """Return the record of going back; None if that attempt was left already."""
        self._check("resume")
        if not self.holding or self.state.attempt != change.attempt:
            return None
        # Once one is flushed all were prepared, and nobody leaves any more but together.
        leaves = change.dead and (self.state.phase == "prepared" or self.state.barred)
        if self.state.phase != "holding" and not leaves:
            raise UsageError(f"{self.state.phase} in attempt {change.attempt}: others may have switched")
        return Changed("resumed", change.attempt)

    # What a record does.

    def note(self, record: Changed) -> None:
        """Be in the phase that the record says; what waited is released by ``release``."""
        state = self.state
        if record.phase == "holding":
            self.next = parse(record.text, "the topology to follow", force=True)
            state.phase, state.attempt, state.next_text, state.lost = "holding", record.attempt, record.text, record.lost
            state.owed, state.list_id, state.barred = [], "", ()
            state.kept, state.untouched, state.absent = record.kept, record.untouched, record.absent
        elif record.phase == "prepared":
            state.phase = "prepared"
        elif record.phase == "barred":
            state.barred = record.lost if state.phase in ("prepared", "flushed") else ()
            state.disowned = tuple(sorted({*state.disowned, *record.lost}))
        else:
            state.phase, state.next_text, self.next = "normal", "", None
            state.lost, state.owed, state.list_id, state.barred = (), [], "", ()
            state.kept, state.untouched, state.absent = None, False, ()

    def follow(self, change: Follow, now: Topology, me: str, greetings: tuple[Envelope, ...] = ()) -> Changed | None:
        """Return the record of following others; None if we are there already."""
        self._check("follow")
        following = change.topology
        if following.version <= now.version:
            return None
        why = why_everybody(now, following)
        if following.name != now.name or why or Comparison(now, following).concerns(me):
            raise UsageError(
                f"version {following.version} concerns {me!r}: it cannot go on to it alone{why and f', since {why}'}"
            )
        if self.holding and self.state.phase != "holding":
            raise UsageError(f"{self.state.phase} in attempt {self.state.attempt}: others count on that")
        if set(change.peers) <= set(self.state.disowned):
            raise UsageError(f"only those have gone on who were declared lost: {', '.join(change.peers)}")
        kept = Comparison(now, following).kept_by(me)
        return Changed("followed", self.state.attempt, write(following), greetings, kept=kept)

    def expel(self, change: Expel, now: Topology) -> Changed | None:
        """Return the record of having been left behind; None if we have left already."""
        if self.state.phase == "left":
            return None
        if not self.left_behind(change.version, now):
            raise UsageError(f"version {change.version} has not gone on without us: this is version {now.version}")
        return Changed("expelled", self.state.attempt)

    def left_behind(self, version: int, now: Topology) -> bool:
        """Whether others can have gone on without us with a version: a later one, or one of our number if we switched alone."""
        return version > now.version or (version == now.version and bool(self.state.previous))

    def note_owed(self, record: Owed) -> None:
        """We have got a part of what we lacked."""
        state = self.state
        state.owed = [*state.owed[: record.at], *record.envelopes]
        state.list_id = record.list_id
        if record.last:
            state.phase = "flushed"

    def entered(self, old: Topology, following: Topology, text: str) -> None:
        """The topology of this text is in force, after ``old``."""
        self.state.text, self.state.previous = text, write(old)
        self.state.gone = {**self.state.gone, **dict.fromkeys(self.state.lost, following.version)}
        left = [name for name in old.processes if name not in following.homes and name not in self.state.lost]
        self.state.departed = {**self.state.departed, **dict.fromkeys(left, following.version)}

    def release(self, greetings: int = 0, depth: int | None = None) -> tuple[Envelope, ...]:
        """Return what waited, in order, numbered behind ``greetings``: numbers rise in the order in which messages are sent.

        So do depths, behind ``depth``, unless nobody counts them.
        """
        released = tuple(
            Envelope(envelope.origin, envelope.number + greetings, envelope.to, envelope.body, 0 if depth is None else depth + at)
            for at, envelope in enumerate(self.state.waiting, 1)
        )
        self.state.waiting = []
        self.waiting_bytes = 0
        return released

    # Submissions.

    def check_submission(self, me: str, to: tuple[str, ...] | None) -> None:
        """Refuse what could not be sent after the change, or not without it."""
        if self.next is None:
            return
        leaving = f"is about to leave: version {self.next.version} of the topology has no place for it"
        if me not in self.next.homes:
            raise Busy(f"{me!r} {leaving}")
        for name in to or ():
            if name not in self.next.homes:
                raise UsageError(f"{name!r} {leaving}")
        if self.next.only_carries(me):
            raise Busy(f"{me!r} is about to be a replica, which sends nothing itself, with version {self.next.version}")
        if to is not None:
            if self._routes is None or self._routes.topology is not self.next:
                self._routes = Routes(self.next)
            self._routes.plan(me, me, to, None)

    def wait(self, envelope: Envelope) -> None:
        """Let an accepted message wait."""
        self.state.waiting.append(envelope)
        self.waiting_bytes += weight_of(envelope)

    # Copies.

    def save(self) -> ViewState | None:
        """Return everything, for a snapshot; None if there was never a change."""
        return self.state if self.state != ViewState() else None

    def load(self, state: ViewState | None) -> None:
        """Become what ``save`` returned."""
        if state is not None:
            self.state = state
            self.next = parse(state.next_text, "the topology to follow", force=True) if state.next_text else None
            self.waiting_bytes = sum(map(weight_of, state.waiting))

    def fork(self) -> View:
        """Return a view that goes on from here on its own."""
        twin = View()
        twin.state = msgspec.structs.replace(
            self.state, waiting=list(self.state.waiting)
        )  # Nothing else in it is changed in place.
        twin.next, twin.waiting_bytes = self.next, self.waiting_bytes
        return twin

    def _check(self, what: str, attempt: int | None = None) -> None:
        """Refuse what comes after this member has left, or for an attempt that is not in force."""
        if self.state.phase == "left":
            raise UsageError(f"{what}: this member has left the fabric")
        if attempt is not None and (not self.holding or self.state.attempt != attempt):
            raise UsageError(f"{what}: attempt {attempt} is not in force here; phase {self.state.phase}, {self.state.attempt}")


def _held(change: Hold, now: Topology, me: str) -> Changed:
    """Return the record of a hold, with what it means to ``me``."""
    record = Changed("holding", change.attempt, write(change.topology), (), change.lost)
    if not change.limited:
        return record
    why = why_everybody(now, change.topology, change.lost)
    if why:
        raise UsageError(f"version {change.topology.version} concerns everybody: {why}")
    compared = Comparison(now, change.topology)
    check_absent(now, change.absent, compared)
    kept, untouched = compared.kept_by(me), not compared.concerns(me)
    return msgspec.structs.replace(record, kept=kept, untouched=untouched, absent=change.absent)


def check_absent(now: Topology, absent: tuple[str, ...], compared: Comparison) -> None:
    """Refuse an attempt without members that the change concerns, or without half of all."""
    for name in absent:
        if name not in now.homes or compared.concerns(name):
            raise UsageError(f"{name!r} cannot be left out of the change: it concerns it")
    if not is_majority(now, absent):
        raise UsageError(f"{len(absent)} of {len(now.homes)} servers are left out: more than half must take part")


def is_majority(now: Topology, absent: Collection[str]) -> bool:
    """Return whether more than half of all are left without those who are absent."""
    return 2 * len(set(absent)) < len(now.homes)


def check_declared(now: Topology, lost: tuple[str, ...]) -> None:
    """Refuse to take those for lost who cannot be."""
    for name in lost:
        if name not in now.homes:
            raise ConfigError(f"{name!r} cannot be lost: it is no member of version {now.version} of {now.name!r}")
    if lost and len(set(lost)) == len(now.processes):
        raise ConfigError(f"all members of {now.name!r} are to be lost: nobody is left to change")


def check_lost(now: Topology, following: Topology, lost: tuple[str, ...]) -> None:
    """Refuse a change that leaves members behind who cannot be, or where nobody could tell what they have lacked."""
    check_declared(now, lost)
    for name in lost:
        if name in following.homes:
            raise ConfigError(f"{name!r} is to be lost, and version {following.version} of {following.name!r} still has it")
    if lost and "fifo" not in now.guarantees:
        raise ConfigError(
            f"{now.name!r} does not keep the order of one sender's messages, so nobody could tell what is missing where"
        )


def _without(lost: tuple[str, ...]) -> str:
    return f" without {', '.join(lost)}" if lost else ""


def check_successor(now: Topology, following: Topology) -> None:
    """Refuse a topology that cannot follow another one."""
    if following.name != now.name:
        raise ConfigError(f"{following.name!r} cannot follow {now.name!r}: a fabric keeps its name")
    if following.version != now.version + 1:
        raise ConfigError(
            f"version {following.version} of {now.name!r} cannot follow version {now.version}: only {now.version + 1} can"
        )
