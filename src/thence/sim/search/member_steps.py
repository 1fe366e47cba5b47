"""The states of members as numbers, and what each input does to a member in a state, made once.

A search meets the same few thousand states of a member in millions of runs. A member is deterministic, so each of its steps is
made once, by the real ``Member.step``, and remembered.

Rules:

* Two members are in the same state if their snapshots are equal, and what else the search compares of them. What a snapshot
  leaves out is lost by a restart, so nothing that matters may be left out; the conformance suite sees to it.
* There is no time: every step is made at time 0.
* A message is one bit, and which one depends on its sender and number alone, so that the order in which concurrent messages
  were sent makes no difference to a state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from thence.core.member.contract import Arrived, Input, Ready, Submit, Suspicion
from thence.core.member.member import Member
from thence.core.reconfig.protocol import FABRIC
from thence.core.wire.messages import Envelope, Packet
from thence.sim.world import parts

BODY: Final = b"body"
"""What every message says: one that arrives without it is none that was sent."""

BODILESS: Final = -1
"""Stands for a message that was delivered with another body."""


class MemberStep(NamedTuple):
    """What one input does to a member in a given state."""

    after: int
    """The number of its state then."""
    frames: tuple[tuple[int, int], ...] = ()
    """Channels and the numbers of the frames that went onto them."""
    sent: tuple[int, ...] = ()
    """The bits of the messages that it has sent."""
    delivered: tuple[int, ...] = ()
    refused: str | None = None
    stable: int = 0
    """Up to which of its messages it says that all have them; 0: no news."""
    safe: int = 0
    """Up to which position it learns that all have what it delivered; 0: no news."""


class MemberSteps:
    """Every step of every member that was asked for, made once."""

    def __init__(self, members: Sequence[Member], messages: int, also: Callable[[Member], Hashable] = lambda _: None) -> None:
        """Number the states of ``members`` from 0 as they are now; each may send up to ``messages``.

        ``also`` gives what two members must have in common beside their snapshots.
        """
        self.names = tuple(member.name for member in members)
        self.number = {name: at for at, name in enumerate(self.names)}
        self.frames: list[tuple[str, Packet[Any]]] = []
        """What travels, by number, with its place: a frame by itself, or a report alone."""
        self.members = list(members)
        """A member in each state, by number. Nobody changes it."""
        self._messages = messages
        self._also = also
        self._states = {self._key(member): at for at, member in enumerate(members)}
        self._frame_numbers: dict[tuple[str, bytes], int] = {}
        self._made: dict[Hashable, MemberStep] = {}
        self._encoder = msgspec.msgpack.Encoder()

    def name_of(self, bit: int) -> str:
        """Return the name of the message that this bit stands for."""
        sender, number = divmod(bit, self._messages)
        return f"{self.names[sender]}:{number + 1}"

    def bit_of(self, origin: str, number: int) -> int:
        """Return the bit that stands for a message."""
        return self.number[origin] * self._messages + number - 1

    def send(self, state: int, to: tuple[str, ...] | None) -> MemberStep:
        """Return what happens if a member in this state sends to ``to``."""
        return self._made.get((state, -1, to)) or self.make(state, (-1, to), Submit(to, BODY))

    def arrive(self, state: int, source: int, frame: int) -> MemberStep:
        """Return what happens if this frame from ``source`` arrives at a member in this state."""
        made = self._made.get((state, source, frame))
        return made or self.make(state, (source, frame), Arrived(self.names[source], self.frames[frame][1]))

    def suspect(self, state: int, peer: str, suspected: bool) -> MemberStep:
        """Return what happens if a member in this state begins or ends to suspect another one."""
        return self.make(state, (-2 if suspected else -3, peer), Suspicion(peer, suspected))

    def make(self, state: int, key: tuple[Hashable, ...], given: Input) -> MemberStep:
        """Return what happens if a member in this state is given this; ``key`` tells it from other inputs."""
        made = self._made.get((state, *key))
        if made is None:
            made = self._made[state, *key] = self._make(state, given)
        return made

    def _make(self, state: int, given: Input) -> MemberStep:
        member = self.members[state].fork()
        ready = member.step(given, 0)
        after = self._states.setdefault(self._key(member), len(self.members))
        if after == len(self.members):
            self.members.append(member)
        return MemberStep(
            after,
            self._frames(member.name, ready),
            tuple(self.bit_of(envelope.origin, envelope.number) for envelope in ready.sent),
            tuple(self._delivered(one.envelope) for one in ready.deliver if one.envelope.origin != FABRIC),
            str(ready.refused[0]) if ready.refused else None,
            ready.stable,
            ready.safe,
        )

    def _key(self, member: Member) -> Hashable:
        return member.name, member.snapshot(), self._also(member)

    def _frames(self, name: str, ready: Ready) -> tuple[tuple[int, int], ...]:
        sent = []
        for peer, packet in ready.send:
            for part in parts(packet):
                number = self._frame_numbers.setdefault((packet.domain, self._encoder.encode(part)), len(self.frames))
                if number == len(self.frames):
                    self.frames.append((packet.domain, part))
                sent.append((self.number[name] * len(self.names) + self.number[peer], number))
        return tuple(sent)

    def _delivered(self, envelope: Envelope) -> int:
        return self.bit_of(envelope.origin, envelope.number) if envelope.body == BODY else BODILESS
