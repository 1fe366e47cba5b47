"""What the parts of ``core.transport.ack_all`` share: the members, the saved state, attempts, and packets being written."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from thence.core.transport.ack_all.claims import Carried, Claim
from thence.core.transport.ack_all.lanes import Lanes
from thence.core.transport.window import PACKET_BYTES
from thence.core.wire.messages import Envelope, Frame, GroupAcks, Packet, weight_of
from thence.core.wire.number_set import NumberSet

StampT = TypeVar("StampT")
KeyT = TypeVar("KeyT")


class AckGroup(NamedTuple):
    """The members of a domain, by number, as one of them sees them."""

    name: str
    members: tuple[str, ...]
    mine: int
    numbers: dict[str, int]
    others: tuple[int, ...]
    near: tuple[int, ...]
    """The others, the nearest first."""
    copying: bool
    """Whether whoever has a message repeats it, not only its sender."""
    resend_after_ns: int
    lanes: Lanes | None
    max_copies_bytes: int


class StreamMessage(msgspec.Struct, Generic[StampT], frozen=True, array_like=True, gc=False):
    """A message of a stream: its recipients (None: all), and its envelope, unless we got only its marker."""

    stamp: StampT
    envelope: Envelope | None
    to: tuple[int, ...] | None

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return weight_of(self.envelope)

    def frame_for(self, member: int) -> Frame[StampT] | None:
        """Return the frame for a member, if we have it."""
        if self.to is not None and member not in self.to:
            return Frame(self.stamp, None)
        return None if self.envelope is None else Frame(self.stamp, self.envelope)


class Unacked(msgspec.Struct, Generic[StampT], array_like=True):
    """A message of ours that some have not acknowledged."""

    message: StreamMessage[StampT]
    lacking: dict[int, None]


class AckAllState(msgspec.Struct, Generic[StampT], array_like=True):
    """Everything that a restart needs. Lists have an entry for each member."""

    last_number: int
    queue: dict[int, Unacked[StampT]]
    """What is not acknowledged by all, by number, in order."""
    received: list[NumberSet]
    known: list[dict[int, NumberSet]]
    """What each member has said that it has: of our stream, and with ``nearest`` of all."""
    copies: list[dict[int, StreamMessage[StampT]]]
    """With ``nearest``: messages of each stream that we may have to repeat."""

    def known_of(self, member: int, stream: int) -> NumberSet:
        """Return what a member has said that it has of a stream."""
        return self.known[member].setdefault(stream, NumberSet())

    def fits(self, members: int) -> bool:
        """Return whether this is the state of a domain with so many members."""
        named = {member for unacked in self.queue.values() for member in unacked.lacking}
        named.update(stream for known in self.known for stream in known)
        return {len(self.received), len(self.known), len(self.copies)} == {members} and named <= set(range(members))


class PacketDraft:
    """What one member is to be sent."""

    def __init__(self) -> None:
        """There is nothing to send yet."""
        self.carried: list[Carried] = []
        self.requests: list[tuple[int, ...]] = []
        self.wanted = False

    def parts(self) -> list[list[Carried]]:
        """Return the frames in parts of ``PACKET_BYTES``, or one frame; at least one part, which may be empty."""
        found: list[list[Carried]] = [[]]
        weight = 0
        for one in self.carried:
            more = one[2].weight
            if found[-1] and weight + more > PACKET_BYTES:
                found.append([])
                weight = 0
            found[-1].append(one)
            weight += more
        return found


class Drafts:
    """What is to be sent at the end of a step."""

    def __init__(self, group: AckGroup) -> None:
        """There is nothing to send yet."""
        self._group = group
        self.table: dict[int, PacketDraft] = {}

    def to(self, member: int) -> PacketDraft:
        """Return the draft for a member, which is sent even if it stays empty."""
        return self.table.setdefault(member, PacketDraft())

    def carry(self, member: int, stream: int, number: int, message: StreamMessage[Any] | None) -> None:
        """Send a message to a member, if we have what it is to get."""
        frame = None if message is None else message.frame_for(member)
        if message is not None and frame is not None:
            self.to(member).carried.append((stream, number, frame, message.to))

    def carry_all(self, members: Collection[int], stream: int, number: int, message: StreamMessage[Any] | None) -> None:
        """Send a message to several members."""
        for member in members:
            self.carry(member, stream, number, message)

    def packets(self, claims: tuple[Claim, ...]) -> Iterator[tuple[str, Packet[Any]]]:
        """Yield the packets, each with its receiver. All say what we have; the first one to a receiver asks."""
        group = self._group
        for member, draft in self.table.items():
            wanted, requests = draft.wanted, tuple(draft.requests)
            for part in draft.parts():
                streams = tuple([stream for stream, _, _, _ in part])
                recipients = tuple([to for _, _, _, to in part])
                group_acks = GroupAcks(
                    claims,
                    wanted,
                    requests,
                    () if all(stream == group.mine for stream in streams) else streams,
                    () if all(to is None for to in recipients) else recipients,
                )
                frames, numbers = tuple([frame for _, _, frame, _ in part]), tuple([number for _, number, _, _ in part])
                yield group.members[member], Packet(group.name, frames, numbers, 0, (), group_acks)
                wanted, requests = False, ()
