"""Deliveries: their positions, those that the application has not consumed, and what a step leads to.

Rules:

* Positions count from 1 over all topologies and restarts.
* A durable member keeps a delivery until it is consumed: after a crash it is delivered again.
* Deliveries come first, then the news of what is safe, then packets: what is sent may depend on what was delivered.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from thence.core.member.attachment import Attachment, forget_safe
from thence.core.member.contract import Delivery, Ready
from thence.core.reconfig.protocol import FABRIC
from thence.core.reconfig.retention import Retention
from thence.core.stability.safe_turn import Deliverable
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.records import Record, SafeUpto
from thence.errors import FrameRefused


class DeliveryLog:
    """What was delivered at one process, by position."""

    def __init__(self, attachment: Attachment, retained: Retention | None) -> None:
        """Deliver what comes by way of ``attachment``; ``retained`` gets to know of it."""
        self._attachment = attachment
        self._retained = retained
        self._durable = attachment.options.durable
        self.position = 0
        """How many were delivered since the first start."""
        self.unconsumed: dict[int, tuple[str, Frame[Any]]] = {}
        self.unconsumed_bytes = 0
        self._consumed_upto = 0

    @property
    def unsafe(self) -> int:
        """How many deliveries are not known to be safe, where that is told (``core.stability.safe_notification``)."""
        notices = self._attachment.notices
        return 0 if notices is None else self.position - notices.upto

    def ready(
        self,
        deliver: Deliverable,
        now: int,
        persist: Sequence[Record] = (),
        accepted: Sequence[Envelope] = (),
        sent: Sequence[Envelope] = (),
        refused: tuple[FrameRefused, ...] = (),
    ) -> Ready:
        """Return what a step leads to, with what is to be delivered and sent now."""
        here = self._attachment
        deliveries = self.add(deliver) if deliver else ()
        safe = self.safe_news() if here.notices is not None else 0
        if here.turn is not None and (deliveries := self.hand_up(deliveries)) and self._durable:
            persist = (*persist, SafeUpto(deliveries[-1].position, now))
        send = here.collect(now)
        stable = here.accounts.news() if here.accounts is not None else 0
        secured = here.secured.news() if here.secured is not None else 0
        return Ready(tuple(persist), send, tuple(accepted), deliveries, refused, here.wake(), tuple(sent), stable, safe, secured)

    def add(self, deliverable: Deliverable) -> tuple[Delivery, ...]:
        """Give deliveries their positions, as far as it is their turn; return those."""
        here, retained, deliveries = self._attachment, self._retained, []
        for place, frame in deliverable:
            self.position += 1
            if retained is not None and frame.envelope is not None and frame.envelope.origin != FABRIC:
                retained.delivered(frame.envelope)
            if self._durable:
                self.unconsumed[self.position] = (place, frame)
                self.unconsumed_bytes += frame.weight
            if here.notices is not None:
                ours = frame.envelope is not None and frame.envelope.origin == here.name
                here.notices.delivered(self.position, put_out=ours or place in here.links)
            deliveries.append(Delivery(self.position, place, frame))
        return tuple(deliveries)

    def safe_news(self) -> int:
        """Return up to which position all deliveries are safe, if that is news; else 0."""
        here, notices = self._attachment, self._attachment.notices
        if notices is None:
            return 0
        if here.accounts is not None:
            here.balance()
        notices.look(None if here.accounts is None else here.accounts.stable)
        forget_safe(here)
        return notices.news() if here.topology.notifying else 0

    def hand_up(self, deliveries: tuple[Delivery, ...]) -> tuple[Delivery, ...]:
        """Let deliveries wait until they are safe, where that is asked for; return those that are by now."""
        turn, notices = self._attachment.turn, self._attachment.notices
        if turn is None or notices is None:
            return deliveries
        turn.put([(delivery.position, delivery.domain, delivery.frame) for delivery in deliveries])
        return tuple([Delivery(*late) for late in turn.next(notices.upto)])

    @property
    def to_consume(self) -> tuple[int, int]:
        """How many deliveries the application has to consume, and their bytes: what waits until it is safe is not among them."""
        turn = self._attachment.turn if self._durable else None
        return len(self.unconsumed) - len(turn or ()), self.unconsumed_bytes - (0 if turn is None else turn.bytes)

    def consumed(self, position: int) -> None:
        """Forget the deliveries up to a position: the application has durably done with them."""
        for consumed in range(self._consumed_upto + 1, min(position, self.position) + 1):
            delivered = self.unconsumed.pop(consumed, None)
            if delivered is not None:
                self.unconsumed_bytes -= delivered[1].weight
            self._consumed_upto = consumed

    def again(self) -> tuple[Delivery, ...]:
        """Return what was delivered and not consumed, to deliver it again."""
        return tuple(Delivery(position, place, frame) for position, (place, frame) in self.unconsumed.items())

    def drop_stamps(self) -> None:
        """Forget the stamps of what is not consumed: their orderings are gone."""
        self.unconsumed = {at: (place, Frame(None, frame.envelope)) for at, (place, frame) in self.unconsumed.items()}

    def fork(self, attachment: Attachment, retained: Retention | None) -> DeliveryLog:
        """Return a log that goes on from here on its own."""
        twin = copy.copy(self)
        twin._attachment, twin._retained, twin.unconsumed = attachment, retained, dict(self.unconsumed)
        return twin

    def load(self, position: int, unconsumed: Sequence[tuple[int, str, Frame[Any]]]) -> None:
        """Go on from a snapshot."""
        self.position = position
        self.unconsumed = {at: (place, frame) for at, place, frame in unconsumed}
        self.unconsumed_bytes = sum(frame.weight for _, _, frame in unconsumed)
        self._consumed_upto = min(self.unconsumed, default=position + 1) - 1
