"""A link between two domains, as the topology names it, and the domain that it is where its relays take over from each other.

Source: interconnect §5 and §7. Design notes: docs/concepts/links.md, docs/concepts/takeover.md.

Rules:

* Without ``takeover`` a link is what ``core.places.link_end`` makes of it, and the first pair holds the sequencers.
* With ``takeover`` it is a domain of all its relays, those of each side being replicas of each other
  (``core.failover.replicas``): so the first of a side that is not suspected is its sequencer, and another one goes on when it
  dies. What crosses still crosses once, by pairs in turn (``core.transport.ack_all.lanes``). There is no second kind of takeover,
  and nothing else has to know of such links.
* With ``fifo`` and ``takeover`` each sender has its pair, as without, and the next pair takes over. With ``only_from`` this is
  the first pair, and the others stand by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.errors import ConfigError

if TYPE_CHECKING:
    from thence.core.places.link_end import LinkEnd

ACK_AFTER_MESSAGES: Final = 8
"""How many messages one ack stands for on a link whose relays take over: all ack to all there, over slow lines too."""

ACK_AFTER_NS: Final = 20_000_000
"""How long such an ack waits for more messages."""


class MakeLinkEnd(Protocol):
    """A class or a function that makes the end of a link at a relay."""

    __name__: str

    def __call__(self, link: Link, me: str, max_early_bytes: int) -> LinkEnd: ...


class Link(NamedTuple):
    """Parallel connections between two domains that share no member."""

    name: str
    between: tuple[str, str]
    relays: tuple[tuple[str, str], ...]
    """Pairs: the relay in the first domain, the relay in the second."""
    mode: Literal["causal", "fifo"] | MakeLinkEnd = "causal"
    """``causal``: a sequencer on each side numbers what crosses and puts it back in order. ``fifo``: senders are divided
    among the relays, without coordination. Or what makes its ends, for whoever tries out some of their own."""
    only_from: tuple[str, ...] | None = None
    """Only messages of these origins cross here (None: all). With ``fifo``, different senders may use different shapes."""
    takeover: bool = False
    """Whether the relays of a side take over from each other, so that none of them is waited for."""

    @property
    def mode_name(self) -> str:
        """The mode, or the name of what makes its ends."""
        return self.mode if isinstance(self.mode, str) else self.mode.__name__

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
        if not isinstance(self.mode, str):
            raise ConfigError("takeover is for mode = 'causal' or 'fifo': nobody knows what a dead relay of another kind did")
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
        by_sender = self.mode == "fifo"
        return Domain(
            self.name, self.members, "vector", {}, acks, pairs=self.relays, by_sender=by_sender, only_from=self.only_from
        )
