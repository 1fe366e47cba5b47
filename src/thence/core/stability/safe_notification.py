"""Safe notification: what was delivered is found to be safe later, when all have it, in whatever domain.

Source: interconnect §7. Design note: docs/concepts/stability.md. Used at all places of a fabric in which a domain says
``delivery = "notify"`` or ``"safe"``. ``core.stability.safe`` tells others what is safe.

Rules:

* One log holds what comes in and what is delivered, in that order. A notice is one number: all deliveries up to this position
  are safe, and so is all that came in before them. So the causes of a message are safe before the message is.
* The origin of a message says that it is safe when everything in its log at the time of sending is safe, and the message is
  stable: a relay reports it only when all beyond have it (``core.stability.accounts``), so this is asked in every domain. Where
  there is one domain, the acks of those who got it are enough.
* A relay says that what it forwarded is safe when it was told so itself: the frame that brought it is in its log.
* So no notice depends on a message that a crash could still take away from another member. Nothing waits in a circle: reports
  wait for no notice, and what a notice waits for happened before.
* A message of our own is safe for our application when it is safe in the domains into which we put it.
* Where relays have replicas, a frame is safe also when its message is known to be, whoever brought it
  (``core.stability.carried``).
* None of this is recorded. What is safe stays so, and who has forgotten it asks again. After a restart the application is
  notified again, never of more than is safe.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping

import msgspec

from thence.core.stability.carried import Carried, CarriedMessages
from thence.core.stability.safe import SafeAcks
from thence.core.transport.base import Incoming
from thence.core.transport.direct import Direct
from thence.core.wire.number_set import NumberSet

Awaited = tuple[str, str, int]
"""What is to become safe: a domain or link, its sender there, and its number; our own messages are counted there."""


class SavedSafePeer(msgspec.Struct, array_like=True):
    """What a restart needs of one peer."""

    sent: int
    safe: int
    heard: int
    highest: int
    received: NumberSet
    acked: NumberSet
    """The last two are empty unless the network is exact."""


class SavedSafeNotification(msgspec.Struct, array_like=True):
    """What a restart needs of one domain or link."""

    own: int
    unsafe: list[tuple[int, list[tuple[str, int]]]]
    """Each unsafe message of our own: how many entries of the log before it are not safe, and to whom it went."""
    peers: dict[str, SavedSafePeer]
    ours: list[tuple[int, int]] = []
    """Of each of these, if we are its origin, its number among ours and its bytes; else zeros."""


class SavedNotices(msgspec.Struct, array_like=True):
    """What a restart needs of the log."""

    upto: int
    log: list[Awaited | int]
    carried: list[Carried] = []
    """Where relays have replicas: frames that are not known to be safe, with their messages."""
    safe_of: dict[str, int] = {}
    """Up to which number all messages of each origin are safe."""


class SafeNotification:
    """Finds out which of our own messages are safe in one domain or link."""

    def __init__(self, acks: SafeAcks) -> None:
        """``acks`` tells it to the others."""
        self.acks = acks
        self.behind = 0
        """How much of the log must be safe before what is sent next is. The member sets it before it sends."""
        self.ours = (0, 0)
        """If what is sent next is a message of our own, its number and its bytes. The member sets it, too."""
        self._behind: deque[int] = deque()
        """``behind`` of each message that is not safe, as it was when that was sent."""
        self._ours: deque[tuple[int, int]] = deque()
        """``ours`` of each message that is not safe."""
        self.bytes_of_ours = 0
        """How many bytes of messages of our own are not safe."""
        self.ours_upto = 0
        """All messages of our own up to this number are safe, as far as they went here."""
        self._passed = 0
        """How much of the log was safe at the last ``look``."""

    @property
    def unsafe(self) -> int:
        """How many messages that we sent here are not safe."""
        return len(self.acks.unsafe)

    def pushed(self) -> None:
        """Note that a message went out."""
        if self.acks.unsafe:
            self._behind.append(self.behind)
            self._ours.append(self.ours)
            self.bytes_of_ours += self.ours[1]

    def is_safe(self, sender: str, number: int) -> bool:
        """Return whether a frame of a peer, or a message of our own, is known to be safe."""
        return number <= (self.acks.own if sender == self.acks.inner.me else self.acks.peers[sender].heard)

    def look(self, passed: int, stable: NumberSet | None) -> None:
        """Find out which of our own messages are safe, now that so much of the log is and these are ``stable``.

        None: there is one domain only, and whoever acknowledged a message is all there is.
        """
        acks, self._passed = self.acks, passed
        while acks.unsafe and self._behind[0] <= passed and acks.all_have(acks.unsafe[0]) and self._all_beyond_have(stable):
            self._behind.popleft()
            number, size = self._ours.popleft()
            self.bytes_of_ours -= size
            self.ours_upto = max(number, self.ours_upto)
            acks.tell_own(acks.own + 1)

    def _all_beyond_have(self, stable: NumberSet | None) -> bool:
        """Return whether all have the next message, in other domains too, and all of ours before it, which led to it.

        Of what we forward the log has told us.
        """
        return stable is None or self._ours[0][0] <= stable.upto

    def fork(self, acks: SafeAcks) -> SafeNotification:
        """Return an independent copy for a copy of the acks."""
        twin = copy.copy(self)
        twin.acks, twin._behind, twin._ours = acks, deque(self._behind), deque(self._ours)
        return twin

    def save(self) -> SavedSafeNotification:
        """Return what a restart needs beside the state of the inner transport."""
        inner, peers = self.acks.inner, {}
        groups = zip(self._behind, self.acks.unsafe, strict=True)
        for peer, state in self.acks.peers.items():
            exact = (
                (inner.ends[peer].received, inner.ends[peer].acked) if isinstance(inner, Direct) else (NumberSet(), NumberSet())
            )
            peers[peer] = SavedSafePeer(state.sent, state.safe, state.heard, state.highest, *exact)
        unsafe = [(max(0, behind - self._passed), list(group)) for behind, group in groups]
        return SavedSafeNotification(self.acks.own, unsafe, peers, list(self._ours))

    def load(self, saved: SavedSafeNotification | None) -> None:
        """Restore what ``save`` returned."""
        inner = self.acks.inner
        if saved is None or set(saved.peers) != set(self.acks.peers):
            raise self.acks.refuse_snapshot("notices")
        self.acks.load(saved.own, [group for _, group in saved.unsafe])
        self._behind = deque(behind for behind, _ in saved.unsafe)
        self._ours = deque(saved.ours)
        self.bytes_of_ours = sum(size for _, size in saved.ours)
        for peer, kept in saved.peers.items():
            state = self.acks.peers[peer]
            state.sent, state.safe, state.heard, state.highest = kept.sent, kept.safe, kept.heard, kept.highest
            if isinstance(inner, Direct):
                end = inner.ends[peer]
                end.received, end.acked, end.numbered = kept.received, kept.acked, kept.sent


class Notices:
    """The log of one member, and how far it is safe."""

    def __init__(self, places: Mapping[str, SafeNotification], position: int) -> None:
        """Begin where all deliveries up to ``position`` are safe; ``places`` know what else is."""
        self.places = places
        self._me = next((place.acks.inner.me for place in places.values()), "")
        self.carried = _carried(places)
        """Where relays have replicas: what their frames carry."""
        self.upto = position
        """All deliveries up to this position are safe."""
        self.notified = 0
        """The application was notified up to this position."""
        self._log: deque[Awaited | int] = deque()
        self._noted = 0
        self._passed = 0

    @property
    def behind(self) -> int:
        """How long the log is by now. What is sent now is safe only if all of it is."""
        return self._noted

    def received(self, place: str, incoming: Incoming) -> None:
        """Note a frame before it is taken."""
        self._note((place, incoming.peer, incoming.number))
        if self.carried is not None:
            self.carried.came(place, incoming)

    def not_received(self) -> None:
        """Remove the last frame, since it was not taken."""
        self._log.pop()
        self._noted -= 1

    def delivered(self, position: int, *, put_out: bool) -> None:
        """Note a delivery; ``put_out``: the message is our own, or one that we brought into a domain."""
        if put_out:
            for name, place in self.places.items():
                if place.unsafe:
                    self._note((name, place.acks.inner.me, place.acks.sent))
        self._note(position)

    def _note(self, what: Awaited | int) -> None:
        self._log.append(what)
        self._noted += 1

    def look(self, stable: NumberSet | None) -> None:
        """Find out what is safe by now; of messages of our own, these are ``stable`` (None: nobody is asked beyond relays)."""
        before = -1
        while before < self._passed:
            before = self._passed
            for place in self.places.values():
                place.look(self._passed, stable)
            if self.carried is not None:
                self.carried.is_safe(self._me, max([place.ours_upto for place in self.places.values()]))
                self.carried.look()
            while self._log:
                what = self._log[0]
                if isinstance(what, int):
                    self.upto = what
                elif not self._is_safe(what):
                    break
                self._log.popleft()
                self._passed += 1

    def _is_safe(self, what: Awaited) -> bool:
        return self.places[what[0]].is_safe(*what[1:]) or (self.carried is not None and self.carried.is_frame_safe(*what))

    def news(self) -> int:
        """Return the position up to which all deliveries are safe if it is news, else 0."""
        if self.upto == self.notified:
            return 0
        self.notified = self.upto
        return self.notified

    @property
    def unsafe(self) -> int:
        """How many messages that we sent are not safe."""
        return sum([place.unsafe for place in self.places.values()])

    @property
    def bytes_of_ours(self) -> int:
        """How many bytes of messages of our own are not safe, in the place where there are most."""
        return max([place.bytes_of_ours for place in self.places.values()], default=0)

    def fork(self, places: Mapping[str, SafeNotification]) -> Notices:
        """Return an independent copy over copies of the places."""
        twin = Notices(places, self.upto)
        twin.notified, twin._noted, twin._passed = self.notified, self._noted, self._passed
        twin._log = deque(self._log)
        if self.carried is not None:
            twin.carried = self.carried.fork({name: place.acks for name, place in places.items() if place.acks.replicas})
        return twin

    def save(self) -> SavedNotices:
        """Return what a restart needs beside the state of the places."""
        if self.carried is None:
            return SavedNotices(self.upto, list(self._log))
        return SavedNotices(self.upto, list(self._log), self.carried.save(), dict(sorted(self.carried.safe_of.items())))

    def load(self, saved: SavedNotices) -> None:
        """Restore what ``save`` returned."""
        self.upto, self._log = saved.upto, deque(saved.log)
        self._noted, self._passed = len(self._log), 0
        if self.carried is not None:
            self.carried.load(saved.carried, saved.safe_of)


def _carried(places: Mapping[str, SafeNotification]) -> CarriedMessages | None:
    """Return what tells which message a frame carries, where there are replicas."""
    acks = {name: place.acks for name, place in places.items() if place.acks.replicas}
    return CarriedMessages(acks) if acks else None
