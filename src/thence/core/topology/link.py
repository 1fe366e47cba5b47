"""A link between two domains, as the topology names it, and the domain that it is where its relays take over from each other.

Source: interconnect §5 and §7. Design notes: docs/concepts/links.md, docs/concepts/takeover.md.

Rules:

* Without ``takeover`` a link is what ``core.places.link_end`` makes of it, and the first pair holds the sequencers.
* With ``takeover`` it is a domain of all its relays, those of each side being replicas of each other
  (``core.failover.replicas``): so the first of a side that is not suspected is its sequencer, and another one goes on when it
  dies. What crosses still crosses once, by pairs in turn (``core.transport.ack_all.lanes``). There is no second kind of takeover,
  and nothing else has to know of such links.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, NamedTuple

from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.errors import ConfigError

ACK_AFTER_MESSAGES: Final = 8
"""Of a link whose relays take over: all ack to all, over slow lines too, so one ack stands for so many messages,"""

ACK_AFTER_NS: Final = 20_000_000
"""or for what comes within this time."""


class Link(NamedTuple):
    """Parallel connections between two domains that share no member."""

    name: str
    between: tuple[str, str]
    relays: tuple[tuple[str, str], ...]
    """Pairs: the relay in the first domain, the relay in the second."""
    mode: Literal["causal", "fifo", "printed"] = "causal"
    """``causal``: a sequencer on each side numbers what crosses and puts it back in order. ``fifo``: senders are divided
    among the relays, without coordination. ``printed``: interconnect Fig. 5, which is not causal (docs/research/errata.md)."""
    wait: Literal["sent", "delivered"] = "delivered"
    """Only for ``printed``: when a message counts as passed on: as soon as this relay sent it, or when it is delivered here."""
    only_from: tuple[str, ...] | None = None
    """Only messages of these origins cross here (None: all). With ``fifo``, different senders may use different shapes."""
    takeover: bool = False
    """Only for ``causal``: whether every relay of a side can be its sequencer, so that none of them is waited for."""

    def side(self, domain: str) -> tuple[str, ...]:
        """Return this link's relays in ``domain``, in the order of the pairs, each once."""
        at = self.between.index(domain)
        return tuple(dict.fromkeys(pair[at] for pair in self.relays))

    def far(self, domain: str) -> str:
        """Return the domain on the other side."""
        return self.between[1 - self.between.index(domain)]

    @property
    def members(self) -> tuple[str, ...]:
        """All relays of this link, on both sides."""
        return self.side(self.between[0]) + self.side(self.between[1])

    @property
    def sequencers(self) -> tuple[tuple[str, ...], ...]:
        """With ``takeover``: who takes over from whom, on each side that has several relays."""
        sides = [self.side(domain) for domain in self.between]
        return tuple(side for side in sides if len(side) > 1) if self.takeover else ()

    def check_takeover(self, members: Mapping[str, Collection[str]]) -> None:
        """Refuse ``takeover`` where it cannot be; ``members`` are those of the two domains."""
        if self.mode != "causal":
            raise ConfigError(f"takeover is for mode = 'causal': with {self.mode!r} there is no sequencer to take over from")
        if self.only_from is not None:
            raise ConfigError("takeover is for links that all may use: leave only_from out")
        if not self.sequencers:
            raise ConfigError("takeover needs two relays on one side at least: nobody could take over")
        for domain, relays in ((domain, self.side(domain)) for domain in self.between):
            if set(members[domain]) <= set(relays):
                raise ConfigError(
                    f"all of domain {domain!r} are its relays: with takeover they only carry what others send, and there are none"
                )

    def as_domain(self) -> Domain:
        """Return the domain that a link with ``takeover`` is."""
        acks = AckOptions(
            scheme="distributed",
            retransmission="nearest",
            whole=True,
            sites=(self.side(self.between[0]), self.side(self.between[1])),
            after_messages=ACK_AFTER_MESSAGES,
            after_ns=ACK_AFTER_NS,
        )
        return Domain(self.name, self.members, "vector", {}, acks, pairs=self.relays)
