"""Which way messages go inside a domain: to whom one goes next, and for whom there must be room.

A member asks this before it takes a message, so that what it takes also fits into the queues that it goes into. An ordering
whose senders write to everybody themselves needs nothing but ``Paths``; one that passes on puts a subclass in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


class Paths:
    """The ways from one member to the others; by default each message goes straight to all who get it."""

    gets_back = False
    """Whether another member hands this one's own messages back to it."""
    circular = False
    """Whether members hand on what they get in a ring, each to the next one."""

    def __init__(self, me: str, members: Sequence[str], *, direct: bool = True) -> None:
        """Start at ``me``; ``direct`` is the trait of that name."""
        self.me = me
        self.members = tuple(members)
        self.direct = direct

    def others(self, to: Collection[str] | None) -> list[str]:
        """Return the members in ``to`` (None: all) without this one."""
        return [name for name in (self.members if to is None else to) if name != self.me]

    def first_hop(self, to: Collection[str] | None) -> list[str]:
        """Return members to whom ``send`` would hand a message for ``to`` at once; who are left out may get it too."""
        return self.others(to) if self.direct else []

    def carries_to(self, to: Collection[str] | None) -> list[str]:
        """Return the members in whose queues ``send`` needs room for a message for ``to``; markers for others need little."""
        return self.first_hop(to) or ([] if self.direct else self.others(None))

    def hands_on_to(self, peer: str) -> Collection[str]:
        """Return the members to whom a message that comes from ``peer`` may be handed on by this one, so that there must be room.

        None, where its origin sends it to all of them: then that one's own queue fills if they do not take it.
        """
        return ()

    def hands_back_to(self, peer: str) -> bool:
        """Return whether this member hands a message that comes from ``peer`` back to it, if it is for that one, too."""
        return False
