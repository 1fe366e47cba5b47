"""How far two members have come with each other, compared when they meet: so one that has forgotten something is noticed.

Whoever runs on an older copy of its store has forgotten what it sent and what it acknowledged since then. It would give numbers a
second time, which the other takes for repetitions and drops, and would wait for ever for what the other has long put away.
Nothing of that would be seen. So each says, before anything else, how far it is, and both look whether that can be.

Rules:

* A member that only crashed has forgotten nothing of this: what it sent, and what it acknowledged, was on disk before.
* Whether somebody has forgotten is found out exactly, from the numbers that both keep anyway. One that was away for a year and
  has exchanged nothing since its copy was made may go on with that.
"""

from __future__ import annotations

import msgspec

from thence.words import counted


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far one member is with another, in one domain or link."""

    sent: int
    """Up to which number it has sent to the other."""
    acked: int
    """Up to which number the other has acknowledged these, without a hole."""
    received: int
    """Up to which number it has taken what the other sent, without a hole."""
    received_highest: int
    """The highest number that it has taken."""
    acked_highest: int = 0
    """The highest number that the other has acknowledged, perhaps out of turn. An earlier version does not say it."""


def forgot(knows: Progress, says: Progress, who: str, other: str, place: str) -> str:
    """Say what ``other`` has forgotten, by what it tells and what ``who`` knows."""
    if says.sent < knows.received_highest:
        there = f"from {other!r} to {who!r} in {place!r}"
        knew = counted(says.sent, "frame")
        return f"{other!r} knows of {knew} {there}, and {who!r} has taken number {knows.received_highest} of these"
    if says.received < knows.acked:
        back = f"from {who!r} to {other!r} in {place!r}"
        return f"{other!r} has taken {counted(says.received, 'frame')} {back}, and had acknowledged number {knows.acked} of these"
    if says.received_highest < knows.acked_highest:
        back = f"from {who!r} to {other!r} in {place!r}"
        what = f"and had acknowledged number {knows.acked_highest} of these"
        return f"{other!r} has taken none above {says.received_highest} of the frames {back}, {what}"
    return ""
