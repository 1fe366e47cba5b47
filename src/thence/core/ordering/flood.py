"""Causal broadcast on any connected graph of FIFO links, with constant control information.

Source: beyond the papers [Nédelec, Molli, Mostéfaoui 2018]. Design note: docs/concepts/orderings/flood.md.

Whoever sees a message for the first time delivers it and forwards it on all its links before anything else. A
message therefore travels behind its causes on every path, and the first copy of it to arrive anywhere comes after
the first copy of each of its causes. Nothing ever waits, and the stamp does not grow with the number of members.

First copies of one origin arrive in order, so "the next number of this origin" tells a first copy from a later one;
and every link counts its frames, so a replay or a hole on a link is seen. Multicast is by filtering: all forward,
recipients deliver.

Option: ``links``: ``"full"`` (default), ``"ring"``, or pairs of members, which must join them all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec

from thence.core.ordering.base import ArrivalOrder, Ordering, Output, Paths, Traits
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ConfigError, ImpossibleFrame, MalformedFrame, StrangerFrame


class FloodStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9):
    """The ``number``-th message of member ``origin``, the ``hop``-th frame on this link, for members ``to`` (None: all)."""

    origin: int
    number: int
    hop: int
    to: tuple[int, ...] | None


class FloodOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which members have a link."""

    links: Literal["full", "ring"] | list[tuple[str, str]] = "full"


class FloodState(msgspec.Struct):
    """Per origin the last number seen; per peer the frames that went and came."""

    seen: list[int]
    hops_out: list[int]
    hops_in: list[int]


class GraphPaths(Paths):
    """Everybody hands on to those whom it has a link with."""

    def __init__(self, me: str, members: Sequence[str], peers: Sequence[str], *, circular: bool) -> None:
        """Start at ``me``, who has links with ``peers``."""
        super().__init__(me, members, direct=False)
        self._peers = list(peers)
        self.circular = circular

    def first_hop(self, to: Collection[str] | None) -> list[str]:
        return self._peers

    def hands_on_to(self, peer: str) -> Collection[str]:
        if len(self._peers) == len(self.members) - 1:
            return ()  # Its origin has sent it to all itself, so that its own queue says who lacks it.
        return [name for name in self._peers if name != peer]


class Flood(Ordering):
    """Causal broadcast over FIFO links, in which each member passes on what is new to it."""

    traits = Traits(
        "flood",
        frozenset({"fifo", "causal"}),
        (FloodStamp,),
        FloodState,
        FloodOptions,
        arrival=ArrivalOrder.FIFO,
        direct=False,
        passes_on=True,
        interchangeable=True,
    )
    state: FloodState

    def _start(self, options: FloodOptions) -> None:
        count = len(self.members)
        peers = self._join(options.links)
        self._refuse_islands(peers)
        self.peers = tuple(sorted(peers[self.my_index]))
        circular = count > 3 and all(len(joined) == 2 for joined in peers)
        self.paths = GraphPaths(self.me, self.members, [self.members[peer] for peer in self.peers], circular=circular)
        self.state = FloodState([0] * count, [0] * count, [0] * count)

    def _join(self, links: Literal["full", "ring"] | list[tuple[str, str]]) -> list[set[int]]:
        count = len(self.members)
        if links == "full":
            return [set(range(count)) - {member} for member in range(count)]
        if links == "ring":
            return [{(member - 1) % count, (member + 1) % count} - {member} for member in range(count)]
        peers: list[set[int]] = [set() for _ in self.members]
        for one, other in links:
            for name in (one, other):
                if name not in self.index:
                    raise ConfigError(f"flood: the link {one}-{other} names {name!r}, who is no member")
            if one == other:
                raise ConfigError(f"flood: a link of {one!r} to itself")
            peers[self.index[one]].add(self.index[other])
            peers[self.index[other]].add(self.index[one])
        return peers

    def _refuse_islands(self, peers: list[set[int]]) -> None:
        reached = [0]
        for member in reached:
            reached += sorted(peers[member].difference(reached))
        if len(reached) < len(self.members):
            lost = next(name for number, name in enumerate(self.members) if number not in reached)
            raise ConfigError(f"flood: the links do not join {self.members[0]!r} and {lost!r}")

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients = self._recipients(to)
        mine = self.my_index
        self.state.seen[mine] += 1
        listed = None if to is None else tuple(recipients)
        out = Output([], [])
        self._forward(Frame(FloodStamp(mine, self.state.seen[mine], 0, listed), envelope), mine, out)
        if mine in recipients:
            out.deliver.append(Frame(FloodStamp(mine, self.state.seen[mine], 0, listed), envelope))
        return out

    def _forward(self, frame: Frame[FloodStamp], came_from: int, out: Output) -> None:
        stamp = frame.stamp
        for peer in self.peers:
            if peer not in (came_from, stamp.origin):
                self.state.hops_out[peer] += 1
                hop = self.state.hops_out[peer]
                onward = Frame(FloodStamp(stamp.origin, stamp.number, hop, stamp.to), frame.envelope)
                out.send.append((self.members[peer], onward))

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp = frame.stamp
        count = len(self.members)
        if sender not in self.peers:
            raise StrangerFrame("there is no link between us")
        if frame.envelope is None or stamp.number < 1 or stamp.hop < 1 or not 0 <= stamp.origin < count:
            raise MalformedFrame("needs a message, an origin and numbers from 1")
        if any(not 0 <= member < count for member in stamp.to or ()):
            raise MalformedFrame(f"recipients {stamp.to} make no sense")
        if stamp.hop > self.state.hops_in[sender] + 1:
            raise ImpossibleFrame(f"frame {stamp.hop} of a FIFO link after frame {self.state.hops_in[sender]}")
        seen = self.state.seen[stamp.origin]
        if stamp.number > seen and (stamp.number > seen + 1 or stamp.origin == self.my_index):
            raise ImpossibleFrame(f"number {stamp.number} of its origin cannot follow number {seen}")
        return sender, stamp.hop

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        return None

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        stamp = held.frame.stamp
        self.state.hops_in[held.sender] = held.number
        if stamp.number <= self.state.seen[stamp.origin]:
            return
        self.state.seen[stamp.origin] = stamp.number
        self._forward(held.frame, held.sender, out)
        if stamp.to is None or self.my_index in stamp.to:
            out.deliver.append(held.frame)

    def _released(self, stream: int) -> int:
        return self.state.hops_in[stream]
