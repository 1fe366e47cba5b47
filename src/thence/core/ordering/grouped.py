"""Subgroups behind gateways: vectors sized by the number of subgroups, concurrency kept.

Source: gateways §3 and §4, repaired. Design note: docs/concepts/orderings/grouped.md.

Members are divided into subgroups; the first member of each is its gateway. A member sends to its gateway, with its
own vector: one entry per subgroup, saying how much of that subgroup's global stream it has seen. The gateway orders
all messages of its subgroup. A message for other subgroups gets the next number of the subgroup's global stream and
goes to every gateway, as a marker where it has no recipients; each gateway passes it on to its recipients, numbered
for each of them.

Where §4 as printed does not do, and what is done here:

* The gateway forwards the message's *own* vector, never its merged one: a message that was merely relayed after
  another one is not ordered after it. As printed, the pair B, C of Fig. 8 ends up with <1,1,0> and <1,1,1>, which
  is ordered.
* §4 has no rule for *holding* a message whose cause is missing. Rule: a gateway releases the n-th message of a
  subgroup's stream after the (n-1)-th and after it has released, of every other stream, what the message's vector
  names.
* A gateway that is no destination of a message would see a hole. It gets a marker.

Option: ``groups``, lists of members (default: consecutive runs of about the square root of their number).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from thence.core.ordering.base import Ordering, Output, Paths, Traits
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ConfigError, ImpossibleFrame, MalformedFrame, StrangerFrame


class GroupedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    """Member to its gateway: its ``number``-th message, for ``to``; ``news`` of its vector since its last one: (group, n), …"""

    number: int
    to: tuple[int, ...] | None
    news: tuple[int, ...]


class GroupedGlobal(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=11):
    """Gateway to gateway: the ``number``-th of the subgroup's global stream, with the message's own vector."""

    number: int
    to: tuple[int, ...] | None
    clock: tuple[int, ...]


class GroupedLocal(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=12):
    """Gateway to one of its members: the ``number``-th for this member; ``clock`` holds what is not 0 of (group, n), …"""

    number: int
    clock: tuple[int, ...]


class GroupedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who belongs together."""

    groups: list[list[str]] | None = None


class GroupedState(msgspec.Struct, rename={"received": "taken"}):
    """Everybody's counts and vectors; those from ``received`` on are used by gateways only."""

    requested: int
    delivered: int
    known: list[int]
    """My vector: per subgroup, up to where its global stream is among the causes of what I send next."""
    news: list[int]
    """The subgroups whose entries changed since my last message."""
    received: list[int]
    """Per member of my subgroup, how many of its messages I have ordered."""
    vectors: list[list[int]]
    """Per member of my subgroup, its vector as of its last message."""
    passed_on: list[int]
    released: list[int]
    """Per subgroup, how much of its global stream I have released; for my own, how much I have numbered."""


class Subgroups(Paths):
    """Who belongs together: messages go to the gateway, from there to all gateways, and from these to their subgroups."""

    def __init__(self, me: str, members: Sequence[str], groups: list[list[str]] | None) -> None:
        """Divide ``members`` into these groups, or into runs of about the square root of their number."""
        super().__init__(me, members, direct=False)
        count = len(members)
        if groups is None:
            size = max(1, math.isqrt(count))
            groups = [list(members[first : first + size]) for first in range(0, count, size)]
        elif sorted(name for group in groups for name in group) != sorted(members) or not all(groups):
            raise ConfigError("grouped: groups must name every member exactly once, and none may be empty")
        index = {name: number for number, name in enumerate(members)}
        self.groups = tuple(tuple(index[name] for name in group) for group in groups)
        home = {name: number for number, group in enumerate(groups) for name in group}
        self.group_of = [home[name] for name in members]
        self.gateways = tuple(group[0] for group in self.groups)
        self.mine = self.group_of[index[me]]
        self.gateway = self.gateways[self.mine]
        self.gets_back = me != members[self.gateway]
        self._index = index

    def hands_on_to(self, peer: str) -> Collection[str]:
        if self.gets_back:
            return ()
        local = self.groups[self.mine]
        members = local if self._index[peer] not in local else (*local, *self.gateways)
        return [name for member in dict.fromkeys(members) if (name := self.members[member]) not in (self.me, peer)]

    def hands_back_to(self, peer: str) -> bool:
        return not self.gets_back and self.group_of[self._index[peer]] == self.mine


class Grouped(Ordering):
    """Causal order among subgroups whose gateways keep a vector with one entry for each subgroup."""

    traits = Traits(
        "grouped",
        frozenset({"fifo", "causal"}),
        (GroupedRequest, GroupedGlobal, GroupedLocal),
        GroupedState,
        GroupedOptions,
        direct=False,
        passes_on=True,
    )
    state: GroupedState

    def _start(self, options: GroupedOptions) -> None:
        count = len(self.members)
        self.paths = paths = Subgroups(self.me, self.members, options.groups)
        self.groups, self.group_of, self.gateways = paths.groups, paths.group_of, paths.gateways
        self.my_group, self.my_gateway = paths.mine, paths.gateway
        # Streams: of member m its requests (m), of subgroup g its global messages (members + g), and what my gateway passes on.
        self.my_stream = count + len(self.groups)
        zeros = [0] * len(self.groups)
        vectors = [list(zeros) for _ in self.members] if self.my_index == self.my_gateway else []
        self.state = GroupedState(0, 0, list(zeros), [], [0] * count, vectors, [0] * count, list(zeros))

    def _stream_name(self, stream: int) -> str:
        group = stream - len(self.members)
        if group < 0:
            return self.members[stream]
        return self.members[self.my_gateway if stream == self.my_stream else self.gateways[group]]

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients = self._recipients(to)
        listed = None if to is None else tuple(recipients)
        out = Output([], [])
        state = self.state
        if self.my_index == self.my_gateway:
            self._order(envelope, listed, list(state.known), out)
            return out
        state.requested += 1
        news = tuple(x for group in sorted(set(state.news)) for x in (group, state.known[group]))
        state.news = []
        stamp = GroupedRequest(state.requested, listed, news)
        out.send.append((self.members[self.my_gateway], Frame(stamp, envelope)))
        return out

    def _order(self, envelope: Envelope, to: tuple[int, ...] | None, vector: list[int], out: Output) -> None:
        """As gateway: give a message of my subgroup its place, here and in the other subgroups."""
        if to is None or any(self.group_of[member] != self.my_group for member in to):
            self.state.released[self.my_group] += 1
            vector[self.my_group] = self.state.released[self.my_group]
            addressed = set(self.gateways if to is None else (self.gateways[self.group_of[member]] for member in to))
            stamp = GroupedGlobal(vector[self.my_group], to, tuple(vector))
            for gateway in self.gateways:
                if gateway != self.my_index:
                    out.send.append((self.members[gateway], Frame(stamp, envelope if gateway in addressed else None)))
        self._pass_on(envelope, to, vector, out)

    def _pass_on(self, envelope: Envelope, to: tuple[int, ...] | None, clock: list[int], out: Output) -> None:
        """As gateway: hand a message to its recipients in my subgroup, with the message's own vector."""
        pairs = tuple(x for group, number in enumerate(clock) if number for x in (group, number))
        for member in self.groups[self.my_group]:
            if to is not None and member not in to:
                continue
            self.state.passed_on[member] += 1
            frame = Frame(GroupedLocal(self.state.passed_on[member], pairs), envelope)
            if member == self.my_index:
                self._learn(pairs)
                out.deliver.append(frame)
            else:
                out.send.append((self.members[member], frame))

    def _learn(self, clock: tuple[int, ...]) -> None:
        """What I send from now on is caused by a message with this vector."""
        known = self.state.known
        for at in range(0, len(clock), 2):
            group, number = clock[at], clock[at + 1]
            if known[group] < number:
                known[group] = number
                # The gateway knows the place of its own subgroup's messages itself, and a gateway sends to nobody.
                if group != self.my_group and self.my_index != self.my_gateway:
                    self.state.news.append(group)

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp = frame.stamp
        if stamp.number < 1:
            raise MalformedFrame(f"numbers start at 1, not {stamp.number}")
        if frame.envelope is None and not isinstance(stamp, GroupedGlobal):
            raise MalformedFrame("only gateways exchange markers")
        if isinstance(stamp, GroupedLocal):
            if sender != self.my_gateway:
                raise StrangerFrame("only my gateway passes on")
            self._check_pairs(stamp.clock)
            return self.my_stream, stamp.number
        if self.my_index != self.my_gateway:
            raise StrangerFrame("I am no gateway")
        if any(not 0 <= member < len(self.members) for member in stamp.to or ()):
            raise MalformedFrame(f"recipients {stamp.to} make no sense")
        if isinstance(stamp, GroupedRequest):
            return self._check_request(sender, stamp)
        if frame.envelope is None and (stamp.to is None or any(self.group_of[member] == self.my_group for member in stamp.to)):
            raise MalformedFrame("a marker of a message that is for my subgroup")
        return self._check_global(sender, stamp)

    def _check_pairs(self, pairs: tuple[int, ...]) -> None:
        groups = pairs[::2]
        if len(pairs) % 2 or any(not 0 <= group < len(self.groups) for group in groups):
            raise MalformedFrame(f"the vector {pairs} makes no sense")
        if pairs and (min(pairs[1::2]) < 1 or len(set(groups)) != len(groups)):
            raise MalformedFrame(f"the vector {pairs} makes no sense")

    def _check_request(self, sender: int, stamp: GroupedRequest) -> tuple[int, int]:
        if self.group_of[sender] != self.my_group:
            raise StrangerFrame(f"{self.members[sender]!r} belongs to another subgroup")
        self._check_pairs(stamp.news)
        for at in range(0, len(stamp.news), 2):
            if stamp.news[at + 1] > self.state.released[stamp.news[at]]:
                raise ImpossibleFrame("it has seen what I, its gateway, have not released")
        return sender, stamp.number

    def _check_global(self, sender: int, stamp: GroupedGlobal) -> tuple[int, int]:
        group = self.group_of[sender]
        if self.gateways[group] != sender:
            raise StrangerFrame(f"{self.members[sender]!r} is no gateway")
        if len(stamp.clock) != len(self.groups) or min(stamp.clock) < 0 or stamp.clock[group] != stamp.number:
            raise MalformedFrame(f"the vector {stamp.clock} makes no sense")
        if stamp.clock[self.my_group] > self.state.released[self.my_group]:
            raise ImpossibleFrame("it is caused by a message of my subgroup that I never numbered")
        return len(self.members) + group, stamp.number

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        before = held.number - 1
        if self._released(held.stream) != before:
            return held.stream, before
        stamp = held.frame.stamp
        if not isinstance(stamp, GroupedGlobal):
            return None
        released = self.state.released
        group = self.group_of[held.sender]
        for other in range(held.cursor, len(stamp.clock)):
            if other != group and released[other] < stamp.clock[other]:
                held.cursor = other
                return len(self.members) + other, stamp.clock[other]
        return None

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        stamp = held.frame.stamp
        state = self.state
        if isinstance(stamp, GroupedLocal):
            state.delivered = held.number
            self._learn(stamp.clock)
            out.deliver.append(held.frame)
        elif isinstance(stamp, GroupedRequest):
            state.received[held.sender] = held.number
            vector = state.vectors[held.sender]
            for at in range(0, len(stamp.news), 2):
                vector[stamp.news[at]] = stamp.news[at + 1]
            self._order(held.message, stamp.to, list(vector), out)
        else:
            state.released[self.group_of[held.sender]] = held.number
            if held.frame.envelope is not None:
                self._pass_on(held.frame.envelope, stamp.to, list(stamp.clock), out)

    def _released(self, stream: int) -> int:
        if stream < len(self.members):
            return self.state.received[stream]
        if stream == self.my_stream:
            return self.state.delivered
        return self.state.released[stream - len(self.members)]
