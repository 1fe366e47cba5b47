"""The states of a small case, as numbers: what a member does in a state, and what the run so far means for the checks.

The explorer meets the same few thousand states of a member in millions of runs. A member is deterministic, so each of its
steps is made once, by the real ``Member.step``, and remembered: from which state, by what, into which state, sending what,
delivering what. The same is done for what the checks know of a run (``Past``).

Rules:

* Two members are in the same state if their snapshots are equal. What a snapshot leaves out is lost by a restart, so nothing that
  matters may be left out; the conformance suite sees to it.
* There is no time: every step is made at time 0.
* A message is one bit, and which one depends on its sender and number alone, so that the order in which concurrent messages
  were sent makes no difference to a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from thence.core.member.contract import Arrived, Ready, Submit, Suspicion
from thence.core.member.member import Member
from thence.core.wire.messages import Envelope, Packet
from thence.sim.world import parts

BODY: Final = b"body"
"""What every message says: one that arrives without it is none that was sent."""

BODILESS: Final = -1
OUT_OF_NOTHING: Final = "creation"
TWICE: Final = "duplication"


class Step(NamedTuple):
    """What one input does to a member in a given state."""

    after: int
    """The number of its state then."""
    sent: tuple[tuple[int, int], ...]
    """Channels and the numbers of the frames that went onto them."""
    submitted: int | None
    """The bit of the message that it has sent, if it has."""
    delivered: tuple[int, ...]
    refused: str | None
    stable: int = 0
    """Up to which of its messages it says that all have them; 0: no news."""
    safe: int = 0
    """Up to which position it is told that all have what it delivered; 0: no news."""


class Steps:
    """Every step of every member that was asked for, made once."""

    def __init__(self, members: Sequence[Member], messages: int) -> None:
        """Number the states of ``members`` from 0 as they are now; each may send up to ``messages``."""
        self.names = tuple(member.name for member in members)
        self.number = {name: at for at, name in enumerate(self.names)}
        self.frames: list[tuple[str, Packet[Any]]] = []
        """What travels, by number, with its place: a frame by itself, or a report alone."""
        self._messages = messages
        self._members = list(members)
        self._states = {(at, member.snapshot()): at for at, member in enumerate(members)}
        self._frame_numbers: dict[tuple[str, bytes], int] = {}
        self._made: dict[tuple[int, int, Any], Step] = {}
        self._encoder = msgspec.msgpack.Encoder()

    def name_of(self, bit: int) -> str:
        """Return the name of the message that this bit stands for."""
        sender, number = divmod(bit, self._messages)
        return f"{self.names[sender]}:{number + 1}"

    def send(self, process: int, state: int, to: tuple[str, ...] | None) -> Step:
        """What happens if this member, in this state, sends to ``to``."""
        key = (state, -1, to)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(process, state, Submit(to, BODY))
        return made

    def arrive(self, process: int, state: int, source: int, frame: int) -> Step:
        """What happens if this frame from ``source`` arrives at this member in this state."""
        key = (state, source, frame)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(process, state, Arrived(self.names[source], self.frames[frame][1]))
        return made

    def suspect(self, process: int, state: int, peer: str, suspected: bool) -> Step:
        """What happens if this member, in this state, begins or ends to hold another one for dead."""
        key = (state, -2 if suspected else -3, peer)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(process, state, Suspicion(peer, suspected))
        return made

    def has(self, state: int, name: str) -> bool:
        """Return whether a member in this state has a message of this name that waits for its turn."""
        return any(str(wait.message) == name for wait in self._members[state].waiting())

    def unstable(self, state: int) -> list[int]:
        """Return the numbers of the messages that a member in this state keeps since not all have them."""
        return self._members[state].unstable()

    def unsafe(self, state: int) -> int:
        """Return how many deliveries a member in this state has not been told to be safe."""
        return self._members[state].unsafe

    def _make(self, process: int, state: int, given: Submit | Arrived | Suspicion) -> Step:
        member = self._members[state].fork()
        ready = member.step(given, 0)
        after = self._states.setdefault((process, member.snapshot()), len(self._members))
        if after == len(self._members):
            self._members.append(member)
        return Step(
            after,
            self._sent(process, ready),
            self._bit(ready.accepted[0].origin, ready.accepted[0].number) if ready.accepted else None,
            tuple(self._delivered(delivery.envelope) for delivery in ready.deliver),
            str(ready.refused[0]) if ready.refused else None,
            ready.stable,
            ready.safe,
        )

    def _sent(self, process: int, ready: Ready) -> tuple[tuple[int, int], ...]:
        sent = []
        for peer, packet in ready.send:
            for part in parts(packet):
                number = self._frame_numbers.setdefault((packet.domain, self._encoder.encode(part)), len(self.frames))
                if number == len(self.frames):
                    self.frames.append((packet.domain, part))
                sent.append((process * len(self.names) + self.number[peer], number))
        return tuple(sent)

    def _delivered(self, envelope: Envelope) -> int:
        return self._bit(envelope.origin, envelope.number) if envelope.body == BODY else BODILESS

    def _bit(self, origin: str, number: int) -> int:
        return self.number[origin] * self._messages + number - 1


class Past(NamedTuple):
    """What the checks need to know of a run, in bit masks over its messages; what is not checked for stays empty."""

    sent: int
    """How many messages there are."""
    addressed: tuple[int, ...]
    """Per process: the messages for it."""
    delivered: tuple[int, ...]
    known: tuple[int, ...]
    """Per process: the messages whose sending lies in its causal past."""
    causes: tuple[int, ...]
    """Per message: the messages whose sending lies in the past of its own."""
    orders: tuple[tuple[int, ...], ...]
    """Per process: the messages as delivered."""


class Pasts:
    """Numbers for what the checks know of runs, and what each action makes of it, found out once."""

    def __init__(self, processes: int, messages: int, require: frozenset[str], *, ordered: bool = False) -> None:
        """Number 0 is the run in which nothing has happened yet. ``ordered``: note in which order each process delivers."""
        self._ordered = ordered or "total" in require
        none = (0,) * processes
        start = Past(0, none, none, none, (0,) * (processes * messages), ((),) * processes)
        self.known: list[Past] = [start]
        self._numbers = {start: 0}
        self._found: dict[tuple[int, int, int, int | None, tuple[int, ...]], str | int] = {}
        self._messages = messages
        self._require = require

    def after(self, past: int, process: int, recipients: int, step: Step) -> str | int:
        """Return the property that this step of a process breaks, or the number of the past with it."""
        key = (past, process, recipients, step.submitted, step.delivered)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(self.known[past], process, recipients, step)
        return found

    def expect_less(self, past: int, processes: int, given_up: int) -> int:
        """Return the number of a past in which these processes are no longer addressed by messages that were given up."""
        known = self.known[past]
        addressed = tuple(mask & ~given_up if processes >> at & 1 else mask for at, mask in enumerate(known.addressed))
        return self._number(known._replace(addressed=addressed))

    def _find(self, past: Past, process: int, recipients: int, step: Step) -> str | int:
        if step.submitted is not None:
            past = self._sent(past, process, recipients, step.submitted)
        for message in step.delivered:
            broken = self._broken(past, process, message)
            if broken:
                return broken
            past = self._delivered(past, process, message)
        return self._number(past)

    def _number(self, past: Past) -> int:
        number = self._numbers.setdefault(past, len(self.known))
        if number == len(self.known):
            self.known.append(past)
        return number

    def _sent(self, past: Past, process: int, recipients: int, message: int) -> Past:
        bit = 1 << message
        causal = "causal" in self._require
        return past._replace(
            sent=past.sent + 1,
            addressed=tuple(mask | bit if recipients >> at & 1 else mask for at, mask in enumerate(past.addressed)),
            known=_put(past.known, process, past.known[process] | bit) if causal else past.known,
            causes=_put(past.causes, message, past.known[process]),
        )

    def _broken(self, past: Past, process: int, message: int) -> str | None:
        """Return what the delivery of a message breaks, if anything."""
        if message == BODILESS or not past.addressed[process] >> message & 1:
            return OUT_OF_NOTHING
        bit = 1 << message
        if past.delivered[process] & bit:
            return TWICE
        awaited = past.addressed[process] & ~past.delivered[process]
        of_the_same_sender_before = bit - (1 << message // self._messages * self._messages)
        if "fifo" in self._require and awaited & of_the_same_sender_before:
            return "fifo"
        if past.causes[message] & awaited:
            return "causal"
        if "total" in self._require and self._contradicts(past, process, message):
            return "total"
        return None

    def _delivered(self, past: Past, process: int, message: int) -> Past:
        bit = 1 << message
        if self._ordered:
            past = past._replace(orders=_put(past.orders, process, (*past.orders[process], message)))
        if "causal" in self._require:
            past = past._replace(known=_put(past.known, process, past.known[process] | past.causes[message] | bit))
        return past._replace(delivered=_put(past.delivered, process, past.delivered[process] | bit))

    @staticmethod
    def _contradicts(past: Past, process: int, message: int) -> bool:
        """Whether somebody delivered ``message`` before one that this process has delivered already."""
        return any(
            past.delivered[process] >> later & 1
            for order in past.orders
            if message in order
            for later in order[order.index(message) + 1 :]
        )


def _put(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
