"""How the members of a domain ack to each other that a message has come, and who repeats one that was lost: options.

Source: gateways §2.3. Design note: docs/concepts/acks.md.

* ``decentralised`` (default): each acks to whom it got a frame from, and that one repeats it (``core.transport.channel``).
* ``centralised``: the same where every message goes through one member, as with ``sequenced``.
* ``distributed``: each acks to everybody (``core.transport.ack_all``). So a member learns from others that it has missed
  something and asks for it: the sender, or with ``retransmission = "nearest"`` the nearest who has it.

In each of them an ack may wait, for some messages or some time, or for whatever is sent anyway (``after_messages``,
``after_ns``). The paper waits "after most recently receiving a message"; here the time runs from the first unacknowledged
one, so that it is a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from thence.core.ordering import ORDERINGS, Ordering
from thence.core.topology.durations import format_duration
from thence.errors import ConfigError

MAX_DISTRIBUTED = 128
"""The most members of a domain that ack to everybody: what that costs grows with their square."""

MAX_AFTER_MESSAGES = 256
"""The most messages that one ack may wait for: a quarter of what may be on its way unacknowledged."""

RESENDS_PER_DELAY = 4
"""So many times longer than an ack may wait, a sender waits for it at least: it must not repeat what is not lost."""


RESEND_AFTER_NS = 200_000_000
"""How long to wait for an acknowledgement at first."""


class AckOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a domain acks. All its members are told the same."""

    scheme: Literal["decentralised", "centralised", "distributed"] = "decentralised"
    retransmission: Literal["sender", "nearest"] = "sender"
    """Who repeats what a member asks for. Only with ``distributed`` does it know who else has it."""
    after_messages: int = 1
    """Delayed ack: ack when so many messages have come, or after ``after_ns``."""
    after_ns: int = 0
    """Ack this long after the first of them. 0: at once."""
    whole: bool = False
    """Whether all members get the whole message, also those that it is not for, as daisy's groups do. With ``nearest`` whoever
    has gone past a message can then repeat it to anybody, so the death of its sender leaves no hole that somebody waits for."""
    sites: tuple[tuple[str, ...], ...] = ()
    """Who is near to whom, for ``nearest``: first those of the same site, then the others, in the order of the members."""

    @classmethod
    def passing_on(cls) -> AckOptions:
        """Return how members ack where whoever has a message passes it on, so that no death leaves a hole."""
        return cls(scheme="distributed", retransmission="nearest", whole=True)

    def check(self, ordering: type[Ordering], members: Sequence[str]) -> None:
        """Refuse what makes no sense together, or with this ordering."""
        self._check_delay()
        self._check_sites(members)
        traits = ordering.traits
        if self.scheme == "centralised" and not traits.centralised:
            raise ConfigError(
                f"scheme 'centralised' is one member who passes everything on, and with {traits.name} all send by themselves: "
                f"use ordering {_named('centralised')}, or scheme 'decentralised'"
            )
        if self.scheme == "distributed" and not traits.one_stamp:
            raise ConfigError(
                f"scheme 'distributed' needs one stamp for all, so that anybody can repeat a message, and {traits.name} stamps "
                f"for each receiver: use ordering {_named('one_stamp')}, or scheme 'decentralised'"
            )
        if self.scheme == "distributed" and len(members) > MAX_DISTRIBUTED:
            raise ConfigError(f"scheme 'distributed' with {len(members)} members; MAX_DISTRIBUTED is {MAX_DISTRIBUTED}")

    def _check_delay(self) -> None:
        if not 1 <= self.after_messages <= MAX_AFTER_MESSAGES:
            raise ConfigError(f"after_messages is {self.after_messages}: it must be from 1 to {MAX_AFTER_MESSAGES}")
        if self.after_ns < 0:
            raise ConfigError(f"after is {self.after_ns} ns: it must be 0 or more")
        if (self.after_messages > 1) != (self.after_ns > 0):
            raise ConfigError(
                f"after_messages is {self.after_messages} and after is {format_duration(self.after_ns)}: to wait, an ack "
                "needs both, a number above 1 and a time, or the last ones would never be acknowledged"
            )

    def _check_sites(self, members: Sequence[str]) -> None:
        if self.retransmission == "nearest" and self.scheme != "distributed":
            raise ConfigError(
                f"retransmission 'nearest' needs scheme 'distributed': with {self.scheme!r} nobody knows who else has a message"
            )
        if self.whole and self.retransmission != "nearest":
            raise ConfigError("whole is for members that repeat what others sent: it needs retransmission 'nearest'")
        if self.sites and self.retransmission != "nearest":
            raise ConfigError("sites say who is nearest: they need retransmission 'nearest'")
        named = [name for site in self.sites for name in site]
        for name in named:
            if name not in members:
                raise ConfigError(f"sites: {name!r} is not among the members {', '.join(members)}")
            if named.count(name) > 1:
                raise ConfigError(f"sites: {name!r} is named twice")

    def check_wait(self, resend_after_ns: int) -> None:
        """Refuse a delay for which a sender that waits so long would not wait."""
        if self.after_ns * RESENDS_PER_DELAY > resend_after_ns:
            raise ConfigError(
                f"after is {format_duration(self.after_ns)}: a sender repeats after {format_duration(resend_after_ns)}, so it is "
                f"at most {format_duration(resend_after_ns // RESENDS_PER_DELAY)}"
            )

    def nearest(self, me: str, members: Sequence[str]) -> list[str]:
        """Return the others, the nearest first."""
        site = next((site for site in self.sites if me in site), ())
        return sorted((name for name in members if name != me), key=lambda name: name not in site)


AT_ONCE = AckOptions()
"""Each acks at once to whom it got a frame from."""


def _named(trait: str) -> str:
    return " or ".join(repr(name) for name, ordering in ORDERINGS.items() if getattr(ordering.traits, trait))
