"""Which way a message takes from one site to the other, where a domain spans two: pairs of members carry in turn.

Source: interconnect §3 and §5, several links between two systems. Design note: docs/concepts/links.md. Used by
``core.transport.ack_all``, where whoever has a message can repeat it to anybody: so these ways are where a message goes *first*,
and no promise depends on them. If somebody on the way is dead, those behind hear from others that there is a message, and ask for
it.

Rules:

* A sender gives its message to all of its own site. Of these the one whose turn it is sends it across, to the other one of its
  pair; that one gives it to all of its site. So it crosses once, however many there are on the other side.
* Turns go by the number of the message in its sender's stream: nobody has to be told whose turn it is.
* Where relays have senders of their own (``by_sender``), each sends across by its own pairs, and nobody takes turns with it.
* Where somebody who should carry is suspected, another way is taken. Two may choose differently: then there are two copies.
* A lane may be slow, and much wait before it. So as long as messages come out of a lane, in their order, what is behind them is
  neither asked for nor sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


class Lanes:
    """The ways of one domain, as one member sees them. Members are numbered."""

    def __init__(self, me: int, pairs: Sequence[tuple[int, int]], *, by_sender: bool = False) -> None:
        """``pairs`` hold every member, on one side only, and are the same for all."""
        self._me = me
        self._of = {name: [lane for lane, pair in enumerate(pairs) if name in pair] for pair in pairs for name in pair}
        """The lanes of each sender, if it has some of its own."""
        self._by_sender = by_sender
        at = 0 if any(me == one for one, _ in pairs) else 1
        self._pairs = tuple((pair[at], pair[1 - at]) for pair in pairs)
        self._fellows = tuple(near for near in dict.fromkeys(near for near, _ in self._pairs) if near != me)
        self._far = tuple(dict.fromkeys(far for _, far in self._pairs))
        self.now = 0
        """When the packet came that is being looked at."""
        self._newest: dict[tuple[int, int], int] = {}
        """The highest number that came out of each stream and lane."""
        self._moved_at: dict[tuple[int, int], int] = {}
        """When a number last came out of each stream and lane."""

    def first(self, number: int, suspected: Collection[int]) -> list[int]:
        """Return to whom a message of our own goes at first."""
        near, far = self._pairs[self._lane(self._me, number)]
        across = [self._across(far, suspected)] if near == self._me or near in suspected else []
        return [*self._fellows, *across]

    def again(self, lacking: Collection[int], attempts: int) -> list[int]:
        """Return to whom it goes when it is repeated: of the other site to one who lacks it, each time to another."""
        far = [other for other in self._far if other in lacking]
        return [*self._fellows, *([far[attempts % len(far)]] if far else [])]

    def onward(self, stream: int, number: int, came_by: int, suspected: Collection[int]) -> list[int]:
        """Return to whom a message goes on that has come from ``came_by``."""
        if came_by in self._far:
            return [fellow for fellow in self._fellows if fellow != stream and fellow not in suspected]
        near, far = self._pairs[self._lane(stream, number)]
        return [self._across(far, suspected)] if near == self._me and stream in self._fellows else []

    def came_out(self, stream: int, number: int) -> None:
        """A message of somebody has come across: to us, or one of ours to the other side."""
        lane = (stream, self._lane(stream, number))
        self._newest[lane] = max(number, self._newest.get(lane, 0))
        self._moved_at[lane] = self.now

    def patient_until(self, stream: int, number: int, wait_ns: int) -> int:
        """Return until when a message may still be on its way, if it has not been overtaken: messages before it come out."""
        lane = (stream, self._lane(stream, number))
        overtaken = self._newest.get(lane, 0) > number
        return 0 if overtaken or lane not in self._moved_at else self._moved_at[lane] + wait_ns

    def is_far(self, member: int) -> bool:
        """Return whether somebody is at the other site."""
        return member in self._far

    @property
    def fellows(self) -> Sequence[int]:
        """The others of our site."""
        return self._fellows

    def _lane(self, stream: int, number: int) -> int:
        lanes = self._of[stream] if self._by_sender else range(len(self._pairs))
        return lanes[number % len(lanes)]

    def _across(self, far: int, suspected: Collection[int]) -> int:
        """Return who on the other side gets a message that is ``far``'s turn."""
        return next((other for other in (far, *self._far) if other not in suspected), far)
