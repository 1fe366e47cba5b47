"""The one interface behind which every ordering stands.

An ordering is the state that one member of one domain keeps so that deliveries come in order. It is a pure state
machine: it never waits, sleeps or sends; it returns what to send and what to deliver. It has three parts: ``traits`` say
what is true of every member of every such domain, ``paths`` which way messages go, and ``pending`` holds what waits.

Rules for whoever writes one (the conformance suite checks each of them):

* ``send`` stamps a message and returns the frames for the other members, and what the sender itself delivers at
  once.
* ``accept`` takes a frame from a member and returns what becomes deliverable, in order. It refuses a frame that is
  malformed, from a stranger, replayed or impossible by raising a ``FrameRefused`` that names it, *before* it
  changes anything.
* ``waiting`` lists what waits: which message, for which one, from whom, since when.
* ``snapshot`` and ``restore`` carry all of the state: a restored ordering goes on exactly as the original would. All that
  changes is in ``state`` and ``pending``.
* The cost of a frame does not depend on how many others wait (see ``pending``).
* Membership is fixed for the life of the object. A change of membership makes a new ordering from the old one's
  state; that is the business of ``core.reconfig.protocol``, and the reason why nothing outside asks an ordering for its
  members' numbers.
"""

from __future__ import annotations

import copy
import enum
import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from thence.core.ordering.pending import MAX_HELD, HeldFrame, PendingFrames
from thence.core.wire.messages import UNREADABLE, Envelope, Frame, MessageId
from thence.errors import (
    ConfigError,
    FrameRefused,
    MalformedFrame,
    OverflowingFrame,
    ReplayedFrame,
    StorageError,
    StrangerFrame,
)
from thence.words import article


class ArrivalOrder(enum.Enum):
    """In which order an ordering needs frames to arrive. Each arrives exactly once in either case."""

    ANY = "any"
    """Frames may overtake each other."""
    FIFO = "fifo"
    """Frames from one member to another arrive in the order in which they were sent."""


class Predecessor(NamedTuple):
    """A message that another one waits for, as the ordering knows it: the ``number``-th in the stream of ``sender``."""

    sender: str
    number: int


class Wait(NamedTuple):
    """One waiting message: which, from whom it came, what it waits for, and since when."""

    message: MessageId | None
    """None for a marker: a message that is not for us, but that others depend on."""
    peer: str
    missing: Predecessor
    since: int
    """0 where nobody writes that down, as of a message of our own that is not acknowledged yet (``resilient``)."""


class Output(msgspec.Struct):
    """What an ordering wants done: frames to send to members, and frames to deliver, in this order."""

    send: list[tuple[str, Frame[Any]]]
    deliver: list[Frame[Any]]
    secured: list[Envelope] = []
    """Messages of our own that outlive us from here on, where the ordering sees to that (``Traits.secures``)."""


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For an ordering without options of its own."""


class Traits(NamedTuple):
    """What is true of every member of every domain with this ordering."""

    name: str
    """Also that of its file."""
    guarantees: frozenset[str]
    """Which of the judge's properties hold beyond exactly-once: ``fifo``, ``causal``, ``total``."""
    stamps: tuple[type, ...]
    """The kinds of stamp that it puts on the wire."""
    state: type[msgspec.Struct]
    """The type of ``Ordering.state``."""
    options: type[msgspec.Struct] = NoOptions
    arrival: ArrivalOrder = ArrivalOrder.ANY
    direct: bool = True
    """Whether a message goes from its sender straight to all who need it: accepting a frame never sends another one."""
    passes_on: bool = False
    """Whether members hand on messages of others within the domain."""
    keeps_sent: bool = False
    """Whether it keeps messages of its own in memory for longer than the transport needs to."""
    one_stamp: bool = False
    """Whether a message goes to all other members with one and the same stamp, as itself or as a marker, in any order of
    arrival: so one number stands for it everywhere, and whoever has it can repeat it to anybody."""
    marks: bool = False
    """Whether every other member gets a frame of each message: a marker, if it is no recipient."""
    centralised: bool = False
    """Whether every message goes through one and the same member, who passes it on."""
    secures: bool = False
    """Whether a message of ours counts as accepted only when enough others hold it, and whom we suspect makes a difference."""
    gated: bool = False
    """Whether replicas can run it: a gate can be put up before it, its waits lead to what was sent earlier, and what a member
    sends waits for all that it has seen. (With ``fifo`` it does not: it could overtake what another replica sent before.)"""
    interchangeable: bool = False
    """Whether all members play the same part, without options: who is called what makes no difference."""


class Survival(ABC):
    """A part of an ordering whose members hand on what others sent, so that a message can outlive its sender."""

    @property
    @abstractmethod
    def suspected(self) -> Collection[str]:
        """Whom we were asked to suspect."""

    @abstractmethod
    def suspect(self, peer: str, suspected: bool) -> Output:
        """Suspect a member, or no longer; that may be wrong."""

    @abstractmethod
    def unsecured(self) -> Collection[Envelope]:
        """Return the messages of our own that do not outlive us yet (``Output.secured``)."""

    @abstractmethod
    def first_sender(self, peer: str, frame: Frame[Any]) -> str:
        """Return which member put a message into this domain that comes from ``peer``."""


class Timed:
    """Of an ordering whose stamps depend on when it sends: whoever calls ``send`` sets the time before."""

    now: int = 0
    """By the member's own clock; of a stored record, when it was made."""


class Securing:
    """Of an ordering with ``Traits.secures``: a message can outlive its sender."""

    survival: Survival


def survival_of(ordering: object) -> Survival | None:
    """Return what lets messages of an ordering outlive their senders, if something does."""
    return ordering.survival if isinstance(ordering, Securing) else None


def stamp_union(stamps: Sequence[type]) -> Any:
    """Return the type "one of these stamps", for a decoder."""
    return functools.reduce(operator.or_, stamps)


class Paths:
    """Which way messages go inside a domain; by default each goes straight to all who get it.

    A member asks this before it takes a message, so that what it takes also fits into the queues that it goes into. An ordering
    that passes on puts a subclass in its place.
    """

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


class Ordering(ABC):
    """The state of one member of one domain: it stamps what is sent, and holds what came before its turn."""

    traits: ClassVar[Traits]
    state: Any
    """Everything that changes, except the frames that wait. An ordering names its type."""

    def __init__(
        self,
        me: str,
        members: Sequence[str],
        options: Mapping[str, Any] | None = None,
        *,
        max_held: int = MAX_HELD,
    ) -> None:
        """Start the state of ``me`` in a domain of ``members``, who must all be given the same list and options."""
        name = self.traits.name
        if len(set(members)) != len(members):
            raise ConfigError(f"{name}: a member is listed twice in {', '.join(members)}")
        if me not in members:
            raise ConfigError(f"{name}: {me!r} is not among the members {', '.join(members)}")
        self.me = me
        self.members = tuple(members)
        self.index = {member: number for number, member in enumerate(self.members)}
        self.my_index = self.index[me]
        self.pending = PendingFrames(max_held)
        self.paths = Paths(me, members, direct=self.traits.direct)
        try:
            self._options = msgspec.convert(dict(options or {}), self.traits.options)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{name}: {error}") from None
        self._start(self._options)

    # What an ordering implements.

    @abstractmethod
    def _start(self, options: Any) -> None:
        """Check the options and make the first state; and the paths, unless they are straight."""

    @abstractmethod
    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        """Stamp ``envelope`` for the members in ``to`` (None: all, the sender included)."""

    @abstractmethod
    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        """Refuse a frame that cannot be, or return its stream and its number there. Must change nothing."""

    @abstractmethod
    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        """Account for ``held`` and put what follows from it into ``out``."""

    @abstractmethod
    def _released(self, stream: int) -> int:
        """Return up to which number ``stream`` has been released."""

    # What an ordering may do in its own way.

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        """Return (stream, number) of one predecessor that is still missing, or None if ``held`` may be released.

        Unless an ordering says otherwise, a frame waits for the one before it in its stream.
        """
        before = held.number - 1
        return None if self._released(held.stream) == before else (held.stream, before)

    def _beyond_limit(self, held: HeldFrame[Any], missing: tuple[int, int]) -> bool:
        """Return whether a frame that must wait is taken beyond the limit; an ordering that says so bounds these itself."""
        return False

    def _stream_name(self, stream: int) -> str:
        """Return whose stream this is, for people. Streams are members unless an ordering says otherwise."""
        return self.members[stream]

    # What every ordering shares.

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        """Take a frame that ``peer`` sent; return what becomes deliverable and what must be sent on."""
        try:
            sender = sender_of(self, peer, frame)
            stream, number = self._check(sender, frame)
            pending = self.pending
            if number <= self._released(stream) or (stream, number) in pending.held:
                raise ReplayedFrame(f"number {number} was accepted before")
            held = HeldFrame(sender, stream, number, frame, now)
            missing = blocker(self, held)
        except FrameRefused as error:
            name_refusal(self, peer, frame, error)
            raise
        out = Output([], [])
        if missing is None:
            self._release_all(held, out)
        else:
            pending.hold(held, missing)
        return out

    def _release_all(self, held: HeldFrame[Any], out: Output) -> None:
        """Release ``held`` and, one after the other, all that waited for it and now may go."""
        ready = [held]
        for released in ready:
            self._release(released, out)
            if self.pending.held:
                ready += self.pending.freed(released.stream, released.number, self._missing)

    def open(self, stream: int, number: int) -> Output:
        """Something has happened for which the gate made frames wait; return what becomes deliverable."""
        out = Output([], [])
        for held in self.pending.freed(stream, number, self._missing):
            self._release_all(held, out)
        return out

    def waiting(self) -> list[Wait]:
        """List every message that waits, oldest first."""
        gate = self.pending.gate
        waits = [
            Wait(
                held.frame.envelope.id if held.frame.envelope else None,
                self.members[held.sender],
                Predecessor(self._stream_name(stream) if stream >= 0 or gate is None else gate.name(stream), number),
                held.since,
            )
            for stream, number, held in self.pending.entries()
        ]
        return sorted(waits, key=lambda wait: wait.since)

    def snapshot(self) -> bytes:
        """Return the whole state. Equal states give equal bytes."""
        saved = (self.traits.name, self.me, self.members, self._options, self.state, self.pending.entries())
        return _ENCODER.encode(saved)

    def restore(self, snapshot: bytes) -> None:
        """Become what the ordering was that gave ``snapshot``; it must have had the same name, place, members and options."""
        mine = self.traits.name
        try:
            name, me, members, options, state, entries = _snapshot_decoder(self.traits).decode(snapshot)
        except UNREADABLE as error:
            raise StorageError(f"{mine}: a snapshot that cannot be read: {error}") from None
        if (name, me, members) != (mine, self.me, self.members):
            raise StorageError(f"{mine}: this is the snapshot of {me!r} in a {name} domain of {', '.join(members)}")
        if options != self._options:
            raise StorageError(f"{mine}: this is a snapshot with other options: {options}, not {self._options}")
        self.state = state
        self.pending.restore(entries)

    def fork(self) -> Self:
        """Return an ordering that goes on from here on its own."""
        twin = copy.copy(self)
        twin.pending = self.pending.empty()
        twin.restore(self.snapshot())
        return twin

    def _recipients(self, to: Collection[str] | None) -> list[int]:
        """Return the numbers of the members in ``to``, in the domain's order."""
        if to is None:
            return list(range(len(self.members)))
        try:
            return sorted({self.index[name] for name in to})
        except KeyError as error:
            known = ", ".join(self.members)
            raise ConfigError(f"{self.traits.name}: {error.args[0]!r} is not among the members {known}") from None

    def _number(
        self, envelope: Envelope, recipients: Iterable[int], counts: list[int], stamp: Callable[[int], Any], out: Output
    ) -> None:
        """Count one more message for each recipient, and stamp it with that recipient's own count."""
        for member in recipients:
            counts[member] += 1
            frame = Frame(stamp(counts[member]), envelope)
            if member == self.my_index:
                out.deliver.append(frame)
            else:
                out.send.append((self.members[member], frame))


def sender_of(ordering: Ordering, peer: str, frame: Frame[Any]) -> int:
    """Return the number of the member who sent a frame; refuse one of a stranger, or with a stamp of another ordering."""
    sender = ordering.index.get(peer)
    if sender is None or sender == ordering.my_index:
        raise StrangerFrame(f"{peer!r} is not another member here")
    # Exactly one of these: an ordering may build its stamps on those of another one, which would not know them.
    if type(frame.stamp) not in ordering.traits.stamps:
        raise MalformedFrame(f"{article(type(frame.stamp).__name__)} is no stamp of {ordering.traits.name}")
    return sender


def blocker(ordering: Ordering, held: HeldFrame[Any]) -> tuple[int, int] | None:
    """Return what a new frame has to wait for, if anything; refuse it if there is no room for it to wait."""
    pending, missing = ordering.pending, ordering._missing(held)
    if missing is None and pending.gate is not None:
        missing = pending.gate.missing(held.frame)
    if missing is not None and pending.full and not ordering._beyond_limit(held, missing):
        raise OverflowingFrame(pending.why_full)
    return missing


def name_refusal(ordering: Ordering, peer: str, frame: Frame[Any], error: FrameRefused) -> None:
    """Let an error say which frame was refused, from whom, and where."""
    what = f"message {frame.envelope.id}" if frame.envelope else "a marker"
    error.args = (f"{ordering.traits.name} frame with {what} from {peer!r} at {ordering.me!r}: {error}",)


def is_suspected(ordering: Ordering, peer: str) -> bool:
    """Return whether an ordering to which that makes a difference was asked to suspect a member."""
    survival = survival_of(ordering)
    return survival is not None and peer in survival.suspected


def unsecured_in(orderings: Iterable[Ordering]) -> list[Envelope]:
    """Return the messages that have not outlived us yet in some domains."""
    parts = map(survival_of, orderings)
    return [envelope for part in parts if part is not None for envelope in part.unsecured()]


@functools.cache
def _snapshot_decoder(traits: Traits) -> msgspec.msgpack.Decoder[Any]:
    held: Any = HeldFrame
    saved: Any = tuple
    waiting: Any = saved[int, int, held[stamp_union(traits.stamps)]]
    return msgspec.msgpack.Decoder(saved[str, str, tuple[str, ...], traits.options, traits.state, list[waiting]])


_ENCODER = msgspec.msgpack.Encoder()
