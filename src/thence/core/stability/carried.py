"""Which message each frame of a replica carries, and up to which number the messages of each origin are safe.

Source: interconnect §7 (a relay that dies before or after it passed a message on). Design note: docs/concepts/stability.md.
``core.stability.safe_notification`` owns it in fabrics whose relays have replicas.

Rules:

* Messages of one origin become safe in the order of their numbers. So one number for each origin is all that is to be known.
* A message is safe whoever brought it. So the frame of a replica is safe when its message is known to be, by the copy of another
  one or by the way that it came here: nobody waits for what a dead one should say.
* Only frames at places of replicas count. There all members get the whole message.
"""

from __future__ import annotations

from collections.abc import Mapping

from thence.core.stability.safe import SafeAcks
from thence.core.transport.base import Incoming

Carried = tuple[str, str, int, str, int]
"""A frame by place, sender and number there, and its message by origin and number."""


class CarriedMessages:
    """The frames that are not known to be safe, and what is known of origins."""

    def __init__(self, places: Mapping[str, SafeAcks]) -> None:
        """``places`` are those with replicas."""
        self._places = places
        self.safe_of: dict[str, int] = {}
        """Up to which number all messages of an origin are safe."""
        self._news: dict[str, None] = {}
        self._frames: dict[tuple[str, str], dict[int, tuple[str, int]]] = {}
        self._looked: dict[tuple[str, str], int] = {}
        """Up to which number of each sender we have looked."""

    def came(self, place: str, incoming: Incoming) -> None:
        """Note a frame."""
        envelope = incoming.frame.envelope
        if envelope is None or place not in self._places:
            return
        if incoming.number <= self._looked.get((place, incoming.peer), 0):
            self.is_safe(envelope.origin, envelope.number)
        else:
            self._frames.setdefault((place, incoming.peer), {})[incoming.number] = (envelope.origin, envelope.number)

    def is_safe(self, origin: str, number: int) -> None:
        """Note that all messages of an origin up to this one are safe."""
        if number > self.safe_of.get(origin, 0):
            self.safe_of[origin] = number
            self._news[origin] = None

    def take_news(self) -> list[str]:
        """Return the origins of which more is safe than at the last call."""
        news, self._news = list(self._news), {}
        return news

    def is_frame_safe(self, place: str, sender: str, number: int) -> bool:
        """Return whether the message of a frame is safe, though one before it may never come since its sender died."""
        message = self._frames.get((place, sender), {}).get(number)
        return message is not None and message[1] <= self.safe_of.get(message[0], 0)

    def look(self) -> None:
        """Find out what follows from what peers have told us by now."""
        for key in self._frames:
            self._note_heard(key)
        grows = True
        while grows:
            grows = False
            for (place, sender), frames in self._frames.items():
                acks = self._places[place]
                if sender not in acks.replicas:
                    continue
                upto = heard = acks.peers[sender].heard
                while (message := frames.get(upto + 1)) is not None and message[1] <= self.safe_of.get(message[0], 0):
                    upto += 1
                if upto > heard:
                    acks.learned(sender, upto)
                    self._note_heard((place, sender))
                    grows = True

    def _note_heard(self, key: tuple[str, str]) -> None:
        """Note the messages of a sender of which we have been told."""
        place, sender = key
        frames, heard = self._frames[key], self._places[place].peers[sender].heard
        looked = self._looked.get(key, 0)
        if heard <= looked:
            return
        numbers = range(looked + 1, heard + 1) if heard - looked <= len(frames) else [at for at in frames if at <= heard]
        for number in numbers:
            message = frames.pop(number, None)
            if message is not None:
                self.is_safe(*message)
        self._looked[key] = heard

    def fork(self, places: Mapping[str, SafeAcks]) -> CarriedMessages:
        """Return an independent copy over copies of the places."""
        twin = CarriedMessages(places)
        twin.safe_of, twin._looked, twin._news = dict(self.safe_of), dict(self._looked), dict(self._news)
        twin._frames = {key: dict(frames) for key, frames in self._frames.items()}
        return twin

    def save(self) -> list[Carried]:
        """Return the frames."""
        return sorted((*key, number, *message) for key, frames in self._frames.items() for number, message in frames.items())

    def load(self, carried: list[Carried], safe_of: Mapping[str, int]) -> None:
        """Restore what ``save`` returned, and what is known of origins."""
        self.safe_of, self._frames, self._looked = dict(safe_of), {}, {}
        for place, sender, number, origin, of_origin in carried:
            self._frames.setdefault((place, sender), {})[number] = (origin, of_origin)
        for name, acks in self._places.items():
            self._looked |= {(name, peer): state.heard for peer, state in acks.peers.items()}
