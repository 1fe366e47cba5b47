"""What survivors owe each other before the next view, when members are gone for good: virtual synchrony.

Design note: docs/how-to/removal.md. When all survivors hold and take nothing any more (``core.reconfig.protocol``: *prepared*),
each says what it has delivered, and of what it has copies (``core.reconfig.retention``). From these reports follows who is to be
given what, and in which order. It is a function of the reports, and they stay the same until the switch: whoever leads the change
may die and another one comes to the same result.

Rules:

* What at least one survivor has sent, delivered or forwarded goes to all survivors that it was for. So all deliver it.
* Messages are handed over in the order of their depth, so causes come before effects, whatever orderings and ways they had.
* What a survivor only *holds*, since something before it never came, was delivered by nobody. If its origin is gone it is handed
  over only where nothing before it can be missing: one member is gone, and every number of it before that message is known, or
  from before the version in force.
  Otherwise it is *given up*, and so is everything of that origin behind it that is only held.
* What no survivor has is given up: nobody knows of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from thence.core.reconfig.retention import is_everyone
from thence.core.wire.messages import Envelope, MessageId


class Copy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that a survivor can give to others."""

    origin: str
    number: int
    depth: int
    to: tuple[str, ...] | None
    held: bool = False
    """Whether it only waits there for its turn."""
    version: int = 0
    """For everyone of which version it is, if it is for everyone (``Envelope.version``)."""

    @property
    def id(self) -> MessageId:
        """The name of the message."""
        return MessageId(self.origin, self.number)

    def is_for(self, member: str, report: Inventory) -> bool:
        """Return whether it is for a member, of which this is the report."""
        return self.version >= report.since if self.to is None else member in self.to


class Inventory(msgspec.Struct, frozen=True, array_like=True):
    """What a survivor has, when it takes nothing any more."""

    latest: dict[str, int]
    """The number of the last message of each origin that it has delivered."""
    copies: list[Copy]
    dropped: dict[str, dict[str, int]]
    """Of what it has no copies of any more: by origin and by whom it was for, the highest number."""
    queued: dict[str, int]
    """How many frames it had for each member that is gone: they go nowhere."""
    before: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of the last message of each origin that it had delivered before the version in force."""
    since: int = 0
    """With which version it came in, if not with the first one."""


class Shortage(NamedTuple):
    """A survivor lacks a message of which nobody has a copy any more."""

    member: str
    origin: str
    number: int


class Settlement(NamedTuple):
    """Who is to be given what."""

    list_id: str
    """Names all that follows: whoever comes to another result has another one."""

    owed: Mapping[str, tuple[MessageId, ...]]
    """For each survivor: what it is to deliver before the switch, in this order."""
    holders: Mapping[MessageId, str]
    """Who can give each of them."""
    given_up: tuple[MessageId, ...]
    """Known messages that nobody will deliver."""
    short: tuple[Shortage, ...]
    """What should have been handed over, and cannot be."""
    undeliverable: int
    """How many frames were queued for those who are gone."""
    last_known: Mapping[str, int]
    """Of each who is gone: the number of the last message that a survivor has or had. Behind it there may have been others."""

    @property
    def passed_on(self) -> int:
        """How many messages somebody lacked."""
        return len({name for names in self.owed.values() for name in names})


def copy_of(envelope: Envelope, *, held: bool = False) -> Copy:
    """Describe a message that we have."""
    return Copy(envelope.origin, envelope.number, envelope.depth, envelope.to, held, envelope.version)


def settle(lost: Collection[str], reports: Mapping[str, Inventory]) -> Settlement:
    """Find out who is to be given what; ``reports`` are of all survivors."""
    known, holders = _known(reports)
    lacking: dict[MessageId, list[str]] = {}
    for name, copy in known.items():
        lacks = [
            member
            for member, report in reports.items()
            if copy.is_for(member, report) and report.latest.get(copy.origin, 0) < copy.number
        ]
        if lacks:
            lacking[name] = lacks
    given_up = _given_up(lost, reports, known, lacking)
    owed: dict[str, list[Copy]] = {member: [] for member in reports}
    for name, lacks in lacking.items():
        for member in lacks if name not in given_up else ():
            owed[member].append(known[name])
    ordered = {member: tuple(copy.id for copy in sorted(copies, key=_turn)) for member, copies in owed.items()}
    undeliverable = sum(sum(report.queued.values()) for report in reports.values())
    list_id = hashlib.blake2b(msgspec.msgpack.encode(ordered), digest_size=8).hexdigest()
    last_known = {name: _last_known(name, reports, known, given_up) for name in lost}
    return Settlement(list_id, ordered, holders, tuple(sorted(given_up)), tuple(_shortages(reports)), undeliverable, last_known)


def _last_known(
    origin: str, reports: Mapping[str, Inventory], known: Mapping[MessageId, Copy], given_up: Collection[MessageId]
) -> int:
    delivered = [report.latest.get(origin, 0) for report in reports.values()]
    return max([0, *delivered, *(name.number for name in known if name.origin == origin and name not in given_up)])


def _turn(copy: Copy) -> tuple[int, str, int]:
    return copy.depth, copy.origin, copy.number


def _known(reports: Mapping[str, Inventory]) -> tuple[dict[MessageId, Copy], dict[MessageId, str]]:
    """Return every message of which there is a copy, and who has it; as one that is only held if nobody has more of it."""
    known: dict[MessageId, Copy] = {}
    holders: dict[MessageId, str] = {}
    for member, report in reports.items():
        for copy in report.copies:
            name = copy.id
            if name not in known or (known[name].held and not copy.held):
                known[name], holders[name] = copy, member
    return known, holders


def _given_up(
    lost: Collection[str],
    reports: Mapping[str, Inventory],
    known: Mapping[MessageId, Copy],
    lacking: Mapping[MessageId, list[str]],
) -> set[MessageId]:
    given_up: set[MessageId] = set()
    for name in sorted(lacking):
        if not known[name].held or name.origin not in lost:
            continue
        delivered = min(reports[member].latest.get(name.origin, 0) for member in lacking[name])
        first = 1 + max(delivered, *(report.before.get(name.origin, 0) for report in reports.values()))
        before = (MessageId(name.origin, number) for number in range(first, name.number))
        if len(lost) > 1 or any(other not in known or other in given_up for other in before):
            given_up.add(name)
    return given_up


def _shortages(reports: Mapping[str, Inventory]) -> list[Shortage]:
    short: dict[tuple[str, str], int] = {}
    for report in reports.values():
        for origin, dropped in report.dropped.items():
            for member, other in reports.items():
                of_all = [number for name, number in dropped.items() if is_everyone(name, since=other.since)]
                number = max(dropped.get(member, 0), *of_all, 0)
                if other.latest.get(origin, 0) < number:
                    short[member, origin] = max(number, short.get((member, origin), 0))
    return [Shortage(member, origin, number) for (member, origin), number in sorted(short.items())]
