"""How a member takes part in a change of its fabric: from one topology to the next, with nothing lost, doubled or out of order.

Design note: docs/evolution.md. Source: daisy §3.1.1 (groups split, merge and take members while messages are sent).

A member is in one of four phases:

* *normal*: nothing is going on.
* *holding*: what the application submits is accepted and written down, and waits. What is on its way goes on.
* *prepared*: everybody holds and nothing is on its way any more, so the change may be decided at any moment.
* *left*: the new topology has no place for this member.

From *prepared* a member *switches*: it makes new places for the new topology, with fresh clocks, sends what waited, in order, and
is normal again. It keeps its message numbers, its deliveries and their positions.

Rules:

* Nothing is on its way when the first one switches, so all from before is delivered everywhere before anything from after is
  sent. ``core.changeover`` says how that is found out, and why no two members can decide differently.
* Every attempt at a change has a number. A member holds for one attempt after the other, with ever higher numbers, so that one
  that has left an attempt can never be in it again.
* A member that holds may go back by itself. One that is prepared may not, unless somebody has seen that the attempt is dead.
* Each step is a record, so a restart finds the phase again, what waits, and the topology.
* A packet is only handed to a member that has the same version of the topology as its sender: whoever connects them sees to it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from thence.core.messages import Envelope, weight_of
from thence.core.records import Changed
from thence.core.routing import Routes
from thence.core.topology import Topology
from thence.core.topology_text import parse, write
from thence.errors import Busy, ConfigError, UsageError

Phase = Literal["normal", "holding", "prepared", "left"]


class Hold(NamedTuple):
    """Let what the application submits wait from now on: ``topology`` is to follow. Only for an attempt of a higher number."""

    attempt: int
    topology: Topology


class Prepare(NamedTuple):
    """Nothing is on its way anywhere: do not go back by yourself any more."""

    attempt: int


class Switch(NamedTuple):
    """All are prepared, or somebody has switched: switch. ``greetings`` are sent, to everyone, before all that waited."""

    attempt: int
    greetings: tuple[bytes, ...] = ()


class Resume(NamedTuple):
    """Go back to normal. ``dead``: somebody has left the attempt, so that nobody can switch in it, not even those prepared."""

    attempt: int
    dead: bool = False


ViewInput = Hold | Prepare | Switch | Resume


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


class View:
    """One member's part in changes. The member itself makes the new places."""

    def __init__(self) -> None:
        """Nothing is going on."""
        self.state = ViewState()
        self.next: Topology | None = None
        self.waiting_bytes = 0
        self._routes: Routes | None = None
        """The ways in the topology to follow, once somebody has asked."""

    @property
    def holding(self) -> bool:
        """Whether submissions wait."""
        return self.state.phase in ("holding", "prepared")

    # What may be asked for, and what follows as a record.

    def hold(self, change: Hold, now: Topology) -> Changed | None:
        """Return the record of a hold that may be; None if it is in force already."""
        state = self.state
        self._check_not_left("hold")
        if change.attempt == state.attempt and self.holding and self._is_next(change.topology):
            return None
        check_successor(now, change.topology)
        if self.holding and not self._is_next(change.topology):
            other = self.next
            raise UsageError(
                f"there is a hold for version {other.version if other else '?'} with fingerprint "
                f"{other.fingerprint if other else '?'}; {change.topology.fingerprint} is another topology"
            )
        if state.phase == "prepared":
            raise UsageError(f"prepared in attempt {state.attempt}: it must be finished, or be known to be dead")
        if change.attempt <= state.attempt:
            raise UsageError(f"attempt {change.attempt} comes too late: there was attempt {state.attempt}")
        return Changed("holding", change.attempt, write(change.topology))

    def prepare(self, change: Prepare) -> Changed | None:
        """Return the record of being prepared."""
        self._check_attempt("prepare", change.attempt)
        return Changed("prepared", change.attempt) if self.state.phase == "holding" else None

    def switch(self, change: Switch, greetings: tuple[Envelope, ...]) -> Changed:
        """Return the record of a switch."""
        self._check_attempt("switch", change.attempt)
        if self.state.phase != "prepared":
            raise UsageError(f"not prepared in attempt {change.attempt}: nobody can have decided to switch")
        return Changed("switched", change.attempt, "", greetings)

    def resume(self, change: Resume) -> Changed | None:
        """Return the record of going back; None if that attempt was left already."""
        self._check_not_left("resume")
        if not self.holding or self.state.attempt != change.attempt:
            return None
        if self.state.phase == "prepared" and not change.dead:
            raise UsageError(f"prepared in attempt {change.attempt}: others may have switched")
        return Changed("resumed", change.attempt)

    # What a record does.

    def note(self, record: Changed) -> None:
        """Be in the phase that the record says; what waited is released by ``release``."""
        state = self.state
        if record.phase == "holding":
            self.next = parse(record.text, "the topology to follow", force=True)
            state.phase, state.attempt, state.next_text = "holding", record.attempt, record.text
        elif record.phase == "prepared":
            state.phase = "prepared"
        else:
            state.phase, state.next_text, self.next = "normal", "", None

    def leave(self, record: Changed) -> None:
        """The new topology has no place for us; it is remembered, for those who ask."""
        self.state.phase, self.state.attempt = "left", record.attempt

    def entered(self, old: Topology, text: str) -> None:
        """The topology of this text is in force, after ``old``."""
        self.state.text, self.state.previous = text, write(old)

    def release(self, greetings: int = 0) -> tuple[Envelope, ...]:
        """Return what waited, in order, numbered behind ``greetings``: numbers rise in the order in which messages are sent."""
        released = tuple(
            Envelope(envelope.origin, envelope.number + greetings, envelope.to, envelope.body) for envelope in self.state.waiting
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
        if me in self.next.fellows:
            raise Busy(f"{me!r} is about to be a replica, which sends nothing itself, with version {self.next.version}")
        if to is not None:
            self._next_routes().plan(me, me, to, None)

    def wait(self, envelope: Envelope) -> None:
        """Let an accepted message wait."""
        self.state.waiting.append(envelope)
        self.waiting_bytes += weight_of(envelope)

    # Copies.

    def save(self) -> ViewState | None:
        """Return everything, for a snapshot; None if there was never a change."""
        return self.state if self.state.attempt else None

    def load(self, state: ViewState | None) -> None:
        """Become what ``save`` returned."""
        if state is not None:
            self.state = state
            self.next = parse(state.next_text, "the topology to follow", force=True) if state.next_text else None
            self.waiting_bytes = sum(map(weight_of, state.waiting))

    def fork(self) -> View:
        """Return a view that goes on from here on its own."""
        twin = View()
        twin.state = msgspec.structs.replace(self.state, waiting=list(self.state.waiting))
        twin.next, twin.waiting_bytes = self.next, self.waiting_bytes
        return twin

    # Checks.

    def _next_routes(self) -> Routes:
        if self._routes is None or self._routes.topology is not self.next:
            if self.next is None:
                raise UsageError("there is no topology to follow")
            self._routes = Routes(self.next)
        return self._routes

    def _is_next(self, topology: Topology) -> bool:
        return self.next is not None and self.next.fingerprint == topology.fingerprint

    def _check_not_left(self, what: str) -> None:
        if self.state.phase == "left":
            raise UsageError(f"{what}: this member has left the fabric")

    def _check_attempt(self, what: str, attempt: int) -> None:
        self._check_not_left(what)
        if not self.holding or self.state.attempt != attempt:
            raise UsageError(f"{what}: attempt {attempt} is not in force here; phase {self.state.phase}, {self.state.attempt}")


def check_successor(now: Topology, following: Topology) -> None:
    """Refuse a topology that cannot follow another one."""
    if following.name != now.name:
        raise ConfigError(f"{following.name!r} cannot follow {now.name!r}: a fabric keeps its name")
    if following.version != now.version + 1:
        raise ConfigError(
            f"version {following.version} of {now.name!r} cannot follow version {now.version}: only {now.version + 1} can"
        )
