"""A domain: some processes, the ordering that they keep among themselves, and how they ack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from thence.core.ordering import Ordering, ordering_named
from thence.core.topology.ack_options import AT_ONCE, AckOptions
from thence.errors import ConfigError

Delivering = Literal["at once", "safe", "notify"]


class Domain(NamedTuple):
    """A domain as each of its members is told of it."""

    name: str
    members: tuple[str, ...]
    ordering: str | type[Ordering]
    """A name from the registry, or a class, for whoever tries out one of their own."""
    options: Mapping[str, Any] = {}
    acks: AckOptions = AT_ONCE
    """Who acks to whom that a frame has come, and who repeats one that was lost."""
    forward_early: int | None = None
    """Of messages that wait at a relay, bodies of at least so many bytes go ahead to where it will forward them; None: none."""
    delivery: Delivering = "at once"
    """When a message is handed up, to the application and onward: as soon as its order allows, when also all have it, or as soon
    as its order allows and the application is told later that all have it."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Where it spans two sites: who here and who there carry from one to the other, each pair in turn
    (``core.transport.ack_all.lanes``)."""
    by_sender: bool = False
    """Not in turn: of replicas each forwards messages of its own senders, over its own pair."""
    only_from: tuple[str, ...] | None = None
    """Only messages of these origins go through here (None: all)."""

    def is_open_to(self, origin: str) -> bool:
        """Return whether messages of ``origin`` go through here."""
        return self.only_from is None or origin in self.only_from

    @property
    def hands_on(self) -> bool:
        """Whether members hand on what a dead one sent, as far as anybody depends on it, so that nothing waits for it."""
        secures = ordering_named(self.ordering).traits.secures and self.options.get("copies", 1) != 0
        return self.acks.whole or secures

    def check_pairs(self) -> None:
        """Refuse pairs that do not lead from every member of one site to one of the other, or that nobody would use."""
        if not self.pairs:
            if self.by_sender or self.only_from is not None:
                raise ConfigError("by_sender and only_from are for domains of relays, with pairs")
            return
        if self.acks.retransmission != "nearest":
            raise ConfigError("who carries for others repeats what they sent: it needs retransmission 'nearest'")
        sides = [dict.fromkeys(pair[at] for pair in self.pairs) for at in (0, 1)]
        for name in (*sides[0], *sides[1]):
            if name not in self.members:
                raise ConfigError(f"{name!r} is not among the members {', '.join(self.members)}")
            if name in sides[0] and name in sides[1]:
                raise ConfigError(f"{name!r} stands on both sides")
        for name in self.members:
            if name not in sides[0] and name not in sides[1]:
                raise ConfigError(f"{name!r} is in none of them")
        if len(set(self.pairs)) < len(self.pairs):
            raise ConfigError("one is listed twice")
