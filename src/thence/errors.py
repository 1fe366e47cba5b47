"""Every error thence raises on purpose, in one tree.

    ThenceError
    ├── UsageError            the caller's mistake; nothing happened
    │   ├── ConfigError         an option, topology or scenario that cannot be
    │   │   └── TopologyError     a fabric that cannot be: names the part that is wrong
    │   ├── NotAllowed          the access file of the server does not let this client do it
    │   └── Busy                a named limit is full; nothing happened, try again later
    ├── FrameRefused          a peer's mistake; the frame was dropped, our state is untouched
    │   ├── MalformedFrame      it cannot be read, or its fields contradict each other
    │   ├── StrangerFrame       it comes from somebody who may not send it
    │   ├── ReplayedFrame       we have had it already
    │   ├── ImpossibleFrame     it claims what cannot be, such as messages we never sent
    │   └── OverflowingFrame    a named limit is full; the same frame may be accepted later
    ├── Refusal               a server does not go on with this client, and says why
    │   ├── Fenced              another program has taken the name; what was not accepted never will be
    │   └── StateLost           the server has lost the mailbox, or what it had accepted or delivered
    ├── TraceError            a trace that cannot be read: names the file, line and column
    ├── StorageError          bytes that we stored come back wrong, or cannot be stored
    │   └── StoreFull           no room on the disk, or a limit of ours; nothing was stored, try again later
    └── InternalError         our mistake: a rule of ours does not hold; anything may have happened

Rules:

* ``fault`` says whose mistake it is: the ``caller``'s, a ``peer``'s, the ``input``'s, the ``machine``'s or ``ours``.
* ``happened`` says whether the thing asked for may have happened all the same: ``no`` or ``maybe``.
  Whoever sees ``no`` may simply try again.
* A message names the thing and the place, so that it can be acted on without reading code.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Fault = Literal["caller", "peer", "input", "machine", "ours"]
Happened = Literal["no", "maybe"]


class ThenceError(Exception):
    """The root: catch this to catch everything that thence raises on purpose."""

    fault: ClassVar[Fault] = "ours"
    happened: ClassVar[Happened] = "maybe"


class UsageError(ThenceError):
    """The caller asked for something that cannot be done. Nothing happened."""

    fault = "caller"
    happened = "no"


class ConfigError(UsageError):
    """An option, a topology or a scenario that cannot be."""


class TopologyError(ConfigError):
    """A fabric that cannot be. ``about`` names the part that is wrong, so that its line can be found."""

    def __init__(self, message: str, *about: str) -> None:
        """``about`` is a path of names, such as ``domains``, ``A``, ``members``, ``s1``."""
        super().__init__(message)
        self.about = about


class NotAllowed(UsageError):
    """The access file of the server does not let this client do it. Nothing happened; everything else goes on."""


class Busy(UsageError):
    """A named limit is full. Nothing happened; the same call may succeed later."""


class FrameRefused(ThenceError):
    """A frame that a peer sent was not accepted. Our state is as it was before."""

    fault = "peer"
    happened = "no"


class MalformedFrame(FrameRefused):
    """The frame cannot be read, or its fields contradict each other."""


class StrangerFrame(FrameRefused):
    """The frame comes from somebody who is no member, or who may not send this kind of frame."""


class ReplayedFrame(FrameRefused):
    """The frame was accepted before."""


class ImpossibleFrame(FrameRefused):
    """The frame claims what cannot be: a dependency on messages that we never sent, a hole in a FIFO channel."""


class OverflowingFrame(FrameRefused):
    """A named limit is full. The same frame may be accepted when there is room again."""


class Refusal(ThenceError):
    """A server does not go on with this client. What was accepted before stays accepted."""

    fault: ClassVar[Fault] = "caller"
    happened: ClassVar[Happened] = "maybe"


class Fenced(Refusal):
    """Another program has taken this client's name. What was accepted before stays accepted; the rest never will be."""


class StateLost(Refusal):
    """The server has lost this client's mailbox, or what it had accepted from it or delivered to it. Start the program anew."""

    fault = "machine"


class TraceError(ThenceError):
    """A trace cannot be read. The message names file, line and column."""

    fault = "input"
    happened = "no"


class StorageError(ThenceError):
    """Stored bytes came back wrong, or could not be stored."""

    fault = "machine"
    happened: ClassVar[Happened] = "maybe"


class StoreFull(StorageError):
    """There is no room on the disk, or a limit of ours is reached. Nothing was stored; the same may be tried again later."""

    happened = "no"


class InternalError(ThenceError):
    """A rule of our own does not hold. Please report it."""
