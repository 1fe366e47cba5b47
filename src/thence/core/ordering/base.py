"""The one interface behind which every ordering stands.

An ordering is the state that one member of one domain keeps so that deliveries come in order. It is a pure state
machine: it never waits, sleeps or sends; it returns what to send and what to deliver.

Rules for whoever writes one (the conformance suite checks each of them):

* ``send`` stamps a message and returns the frames for the other members, and what the sender itself delivers at
  once.
* ``accept`` takes a frame from a member and returns what becomes deliverable, in order. It refuses a frame that is
  malformed, from a stranger, replayed or impossible by raising a ``FrameRefused`` that names it, *before* it
  changes anything.
* ``waiting`` lists what waits: which message, for which one, from whom, since when.
* ``snapshot`` and ``restore`` carry all of the state: a restored ordering goes on exactly as the original would.
* The cost of a frame does not depend on how many others wait (see ``holding``).
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

from thence.core.ordering.pending import MAX_HELD, Held, Holding
from thence.core.wire.messages import UNREADABLE, Envelope, Frame, MessageId
from thence.errors import ConfigError, MalformedFrame, OverflowingFrame, ReplayedFrame, StorageError, StrangerFrame
from thence.words import article


class Arrival(enum.Enum):
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


class Gate(ABC):
    """What a frame waits for beside its predecessors: something that happens outside of the domain.

    When that has happened, whoever put up the gate calls ``Ordering.open``.
    """

    @abstractmethod
    def missing(self, frame: Frame[Any]) -> tuple[int, int] | None:
        """Return what this frame waits for outside, or None; as (stream, number), where such streams are below 0."""

    @abstractmethod
    def name(self, stream: int) -> str:
        """Return whose stream that is, for people."""


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For an ordering without options of its own."""


def stamp_union(stamps: Sequence[type]) -> Any:
    """Return the type "one of these stamps", for a decoder."""
    return functools.reduce(operator.or_, stamps)


class Ordering(ABC):
    """The state of one member of one domain. See the module's text for the rules."""

    name: ClassVar[str]
    arrival: ClassVar[Arrival] = Arrival.ANY
    guarantees: ClassVar[frozenset[str]]
    """Which of the judge's properties hold beyond exactly-once: ``fifo``, ``causal``, ``total``."""
    direct: ClassVar[bool] = True
    """Whether a message goes from its sender straight to all who need it: accepting a frame never sends another one."""
    passes_on: ClassVar[bool] = False
    """Whether members hand on messages of others within the domain."""
    keeps_sent: ClassVar[bool] = False
    """Whether it keeps messages of its own in memory for longer than the transport needs to."""
    one_stamp: ClassVar[bool] = False
    """Whether a message goes to all other members with one and the same stamp, as itself or as a marker, in any order of
    arrival: so one number stands for it everywhere, and whoever has it can repeat it to anybody."""
    centralised: ClassVar[bool] = False
    """Whether every message goes through one and the same member, who passes it on."""
    gated: ClassVar[bool] = False
    """Whether a gate can be put up before it: its waits lead to what was sent earlier, and releases go by ``_waits_for``."""
    interchangeable: ClassVar[bool] = False
    """Whether all members play the same part, without options: who is called what makes no difference."""
    stamps: ClassVar[tuple[type, ...]]
    """The kinds of stamp this ordering puts on the wire."""
    Options: ClassVar[type[msgspec.Struct]] = NoOptions
    State: ClassVar[type[msgspec.Struct]]
    state: Any
    """Everything that changes, except the frames that wait. An ordering names its type."""
    gets_back = False
    """Whether another member hands this one's own messages back to it."""
    circular = False
    """Whether members hand on what they get in a ring, each to the next one."""
    gate: Gate | None = None
    """Put up by whoever owns the ordering, again after a restart or a fork: it is no part of the state."""

    def __init__(
        self,
        me: str,
        members: Sequence[str],
        options: Mapping[str, Any] | None = None,
        *,
        max_held: int = MAX_HELD,
    ) -> None:
        """Start the state of ``me`` in a domain of ``members``, who must all be given the same list and options."""
        if len(set(members)) != len(members):
            raise ConfigError(f"{self.name}: a member is listed twice in {', '.join(members)}")
        if me not in members:
            raise ConfigError(f"{self.name}: {me!r} is not among the members {', '.join(members)}")
        self.me = me
        self.members = tuple(members)
        self.index = {member: number for number, member in enumerate(self.members)}
        self.my_index = self.index[me]
        self._holding: Holding = Holding(max_held)
        try:
            self._options = msgspec.convert(dict(options or {}), self.Options)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self.name}: {error}") from None
        self._start(self._options)

    # What an ordering implements.

    @abstractmethod
    def _start(self, options: Any) -> None:
        """Check the options and make the first state."""

    @abstractmethod
    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        """Stamp ``envelope`` for the members in ``to`` (None: all, the sender included)."""

    @abstractmethod
    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        """Refuse a frame that cannot be, or return its stream and its number there. Must change nothing."""

    @abstractmethod
    def _missing(self, held: Held[Any]) -> tuple[int, int] | None:
        """Return (stream, number) of one predecessor that is still missing, or None if ``held`` may be released."""

    @abstractmethod
    def _release(self, held: Held[Any], out: Output) -> None:
        """Account for ``held`` and put what follows from it into ``out``."""

    @abstractmethod
    def _released(self, stream: int) -> int:
        """Return up to which number ``stream`` has been released."""

    def _always_taken(self, held: Held[Any], missing: tuple[int, int]) -> bool:
        """Return whether a frame that must wait is taken beyond the limit; an ordering that says so bounds these itself."""
        return False

    def _stream_name(self, stream: int) -> str:
        """Return whose stream this is, for people. Streams are members unless an ordering says otherwise."""
        return self.members[stream]

    def first_hop(self, to: Collection[str] | None) -> list[str]:
        """Return members to whom ``send`` would hand a message for ``to`` at once; who are left out may get it too."""
        return [name for name in (self.members if to is None else to) if name != self.me] if self.direct else []

    def carries_to(self, to: Collection[str] | None) -> list[str]:
        """Return the members in whose queues ``send`` needs room for a message for ``to``; markers for others need little."""
        return self.first_hop(to) or ([] if self.direct else [name for name in self.members if name != self.me])

    def hands_on_to(self, peer: str) -> Collection[str]:
        """Return the members to whom a message that comes from ``peer`` may be handed on by this one, so that there must be room.

        None, where its origin sends it to all of them: then that one's own queue fills if they do not take it.
        """
        return ()

    def hands_back_to(self, peer: str) -> bool:
        """Return whether this member hands a message that comes from ``peer`` back to it, if it is for that one, too."""
        return False

    # What every ordering shares.

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        """Take a frame that ``peer`` sent; return what becomes deliverable and what must be sent on."""
        sender = self.index.get(peer)
        if sender is None or sender == self.my_index:
            raise StrangerFrame(f"{self._describe(peer, frame)}: {peer!r} is not another member here")
        # Exactly one of these: an ordering may build its stamps on those of another one, which would not know them.
        if type(frame.stamp) not in self.stamps:
            raise MalformedFrame(
                f"{self._describe(peer, frame)}: {article(type(frame.stamp).__name__)} is no stamp of {self.name}"
            )
        stream, number = self._check(sender, frame)
        if number <= self._released(stream) or self._holding.holds(stream, number):
            raise ReplayedFrame(f"{self._describe(peer, frame)}: number {number} was accepted before")
        held = Held(sender, stream, number, frame, now)
        missing = self._waits_for(held)
        out = Output([], [])
        if missing is None:
            self._release_all(held, out)
        elif self._holding.full and not self._always_taken(held, missing):
            raise OverflowingFrame(f"{self._describe(peer, frame)}: {self._holding.why_full}")
        else:
            self._holding.hold(held, missing)
        return out

    def _release_all(self, held: Held[Any], out: Output) -> None:
        """Release ``held`` and, one after the other, all that waited for it and now may go."""
        ready = [held]
        for released in ready:
            self._release(released, out)
            ready += self._freed(released.stream, released.number)

    def awaits(self, stream: int, number: int) -> bool:
        """Return whether something waits for this."""
        return self._holding.awaits(stream, number)

    def open(self, stream: int, number: int) -> Output:
        """Something has happened for which the gate made frames wait; return what becomes deliverable."""
        out = Output([], [])
        for held in self._freed(stream, number):
            self._release_all(held, out)
        return out

    def _freed(self, stream: int, number: int) -> list[Held[Any]]:
        """Take out what waited for this and now waits for nothing more."""
        free = []
        for waiting in self._holding.take(stream, number):
            missing = self._waits_for(waiting)
            if missing is None:
                self._holding.forget(waiting)
                free.append(waiting)
            else:
                self._holding.hold_on(waiting, missing)
        return free

    def _waits_for(self, held: Held[Any]) -> tuple[int, int] | None:
        """Return one thing that is still missing, in the domain or before the gate, or None if ``held`` may be released."""
        missing = self._missing(held)
        return self.gate.missing(held.frame) if missing is None and self.gate is not None else missing

    @property
    def held(self) -> int:
        """How many frames wait."""
        return len(self._holding)

    @property
    def held_bytes(self) -> int:
        """How many bytes they have, about."""
        return self._holding.bytes

    def held_messages(self) -> list[Envelope]:
        """Return the messages that wait, without markers."""
        return [held.frame.envelope for _, _, held in self._holding.entries() if held.frame.envelope is not None]

    def waiting(self) -> list[Wait]:
        """List every message that waits, oldest first."""
        waits = [
            Wait(
                held.frame.envelope.id if held.frame.envelope else None,
                self.members[held.sender],
                Predecessor(self._stream_name(stream) if stream >= 0 or self.gate is None else self.gate.name(stream), number),
                held.since,
            )
            for stream, number, held in self._holding.entries()
        ]
        return sorted(waits, key=lambda wait: wait.since)

    def snapshot(self) -> bytes:
        """Return the whole state. Equal states give equal bytes."""
        saved = (self.name, self.me, self.members, self._options, self._state_to_save(), self._holding.entries())
        return _ENCODER.encode(saved)

    def restore(self, snapshot: bytes) -> None:
        """Become what the ordering was that gave ``snapshot``; it must have had the same name, place, members and options."""
        try:
            name, me, members, options, state, entries = _snapshot_decoder(type(self)).decode(snapshot)
        except UNREADABLE as error:
            raise StorageError(f"{self.name}: a snapshot that cannot be read: {error}") from None
        if (name, me, members) != (self.name, self.me, self.members):
            raise StorageError(f"{self.name}: this is the snapshot of {me!r} in a {name} domain of {', '.join(members)}")
        if options != self._options:
            raise StorageError(f"{self.name}: this is a snapshot with other options: {options}, not {self._options}")
        self._restore_state(state)
        self._holding.restore(entries)

    def _state_to_save(self) -> Any:
        return self.state

    def _restore_state(self, state: Any) -> None:
        self.state = state

    def fork(self) -> Self:
        """Return an ordering that goes on from here on its own."""
        twin = copy.copy(self)
        twin._holding = self._holding.empty()
        twin.restore(self.snapshot())
        return twin

    def _recipients(self, to: Collection[str] | None) -> list[int]:
        """Return the numbers of the members in ``to``, in the domain's order."""
        if to is None:
            return list(range(len(self.members)))
        try:
            return sorted({self.index[name] for name in to})
        except KeyError as error:
            raise ConfigError(f"{self.name}: {error.args[0]!r} is not among the members {', '.join(self.members)}") from None

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

    def _describe(self, peer: str, frame: Frame[Any]) -> str:
        """Name a frame, for an error."""
        what = f"message {frame.envelope.id}" if frame.envelope else "a marker"
        return f"{self.name} frame with {what} from {peer!r} at {self.me!r}"


@functools.cache
def _snapshot_decoder(ordering: type[Ordering]) -> msgspec.msgpack.Decoder[Any]:
    held: Any = Held
    saved: Any = tuple
    waiting: Any = saved[int, int, held[stamp_union(ordering.stamps)]]
    return msgspec.msgpack.Decoder(saved[str, str, tuple[str, ...], ordering.Options, ordering.State, list[waiting]])


_ENCODER = msgspec.msgpack.Encoder()
