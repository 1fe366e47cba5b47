"""The fast path: one message that is next in every respect, through place, channel and vector ordering in one function.

Where two programs talk to each other, each message finds everything in order: nothing waits, nothing was lost, all that came
before is acknowledged. Then most of what channel and ordering do is to find out that there is nothing to do, and that is most of
what a round trip takes (docs/research/benchmarks.md).

Rules:

* Either everything is done that the usual path would do, to the last field, or nothing is, and None says so.
  ``tests/properties/members/test_quick.py`` takes both and compares.
* Only for one vector domain with channels. Whatever is unusual takes the usual path: several frames, holes, repetitions, bodies
  that went ahead, an ordering that builds on the vector ordering, and everything that may have to be refused.
"""

from __future__ import annotations

from typing import Any

from thence.core.member.attachment import Attachment
from thence.core.member.contract import Arrived, Delivery, Ready, Submit
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Forwarder
from thence.core.member.limits import MAX_QUEUED, MAX_QUEUED_BYTES
from thence.core.ordering.vector import Vector
from thence.core.places.place import DomainPlace
from thence.core.reconfig.protocol import View
from thence.core.transport.acks import ACK_BYTES
from thence.core.transport.base import Packets
from thence.core.transport.channel import WINDOW
from thence.core.transport.channels import PeerChannels
from thence.core.transport.quotas import harmless
from thence.core.wire.messages import FRAME_WEIGHT, MAX_BODY_BYTES, Envelope, Frame, Packet


class FastPath:
    """Submits and receives where nothing is unusual. Only for an attachment that is ``simple``."""

    def __init__(self, attachment: Attachment, log: DeliveryLog, forwarder: Forwarder, view: View) -> None:
        """Change ``attachment``, ``log`` and ``forwarder`` as the usual path would."""
        self._attachment = attachment
        self._log = log
        self._forwarder = forwarder
        self._view = view
        self._harmless = harmless(attachment.options.max_queued), harmless(attachment.options.max_queued_bytes)

    def submit(self, submit: Submit, now: int) -> Ready | None:
        """Accept a message, if nothing is unusual."""
        here, to, body = self._attachment, submit.to, submit.body
        frames, size = self._harmless
        if len(body) > MAX_BODY_BYTES or here.in_memory >= frames or (to is not None and len(to) != 1):
            return None
        if self._view.state.phase != "normal":
            return None
        (place,) = here.domains.values()
        if place.transport.queued_bytes >= size:
            return None
        envelope = Envelope(here.name, self._forwarder.number + 1, to, body)
        sent = send_at_once(place, envelope, now)
        if sent is None:
            return None
        packets, deliver = sent
        self._forwarder.number += 1
        here.in_memory += len(packets)
        deliveries = self._log.add([(place.name, frame) for frame in deliver]) if deliver else ()
        return Ready((), tuple(packets), (envelope,), deliveries, (), place.transport.wake_at, (envelope,))

    def arrived(self, arrived: Arrived, now: int) -> Ready | None:
        """Take a packet, if nothing is unusual."""
        here, log, packet = self._attachment, self._log, arrived.packet
        place = here.domains.get(packet.domain)
        if place is None or here.in_memory >= MAX_QUEUED or place.transport.queued_bytes >= MAX_QUEUED_BYTES:
            return None
        queued = place.transport.queued
        frame = take_at_once(place, arrived.peer, packet, now)
        if frame is None:
            return None
        here.in_memory += place.transport.queued - queued
        log.position += 1
        send = tuple(place.transport.collect(now))
        return Ready((), send, (), (Delivery(log.position, place.name, frame),), (), place.transport.wake_at)


def take_at_once(place: DomainPlace, peer: str, packet: Packet[Any], now: int) -> Frame[Any] | None:
    """Take the one frame of a packet and return it, for the application."""
    transport, ordering, frames = place.transport, place.ordering, packet.frames
    if len(frames) != 1 or type(transport) is not PeerChannels or type(ordering) is not Vector or peer not in transport.channels:
        return None
    frame, channel = frames[0], transport.channels[peer]
    state, upto, body = channel.state, packet.acked, frame.envelope
    if (
        body is None
        or body.origin != peer
        or packet.numbers != (state.received.upto + 1,)
        or state.received.beyond
        or channel.inbound.early
    ):
        return None
    if (upto > channel.gone_upto and upto != state.last_number) or packet.acked_beyond or packet.group_acks is not None:
        return None
    if body.to is not None and not ordering.names.issuperset(body.to):
        return None
    if place.bodies.stores or frame.bodiless or not ordering.deliver_next(peer, frame):
        return None
    if upto > channel.gone_upto:
        transport.queued -= len(state.queue)
        transport.queued_bytes -= channel.queued_bytes
        channel.all_acked(now)
    state.received.upto += 1
    acks = channel.acks
    acks.frames += 1
    acks.bytes += FRAME_WEIGHT + len(body.body)
    if acks.frames >= acks.every or acks.bytes >= ACK_BYTES:
        acks.at = now
    elif acks.at is None:
        acks.at = now + acks.within_ns
    if state.queue or acks.at <= now:
        transport.to_visit[peer] = None
    elif transport.wake_at is None or acks.at < transport.wake_at:
        transport.wake_at = acks.at
    return frame


def send_at_once(place: DomainPlace, envelope: Envelope, now: int) -> tuple[Packets, list[Frame[Any]]] | None:
    """Send a message to all others, each in a packet of its own; return the packets, and what is for ourselves."""
    transport, ordering = place.transport, place.ordering
    if type(transport) is not PeerChannels or type(ordering) is not Vector or transport.to_visit or place.bodies.sent:
        return None
    most = FRAME_WEIGHT + len(envelope.body)
    for channel in transport.channels.values():
        late = channel.resend_at is not None and now >= channel.resend_at
        if late or channel.sent_upto != channel.state.last_number or channel.state.received.beyond:
            return None
        if channel.queued_bytes + most > channel.window.bytes or len(channel.state.queue) >= WINDOW:
            return None
    output = ordering.send(envelope, envelope.to)
    packets: Packets = []
    for peer, frame in output.send:
        channel = transport.channels[peer]
        weight = most if frame.envelope is not None else FRAME_WEIGHT
        state = channel.state
        number = state.last_number = channel.sent_upto = state.last_number + 1
        state.queue[number] = frame
        channel.queued_bytes += weight
        transport.queued_bytes += weight
        transport.queued += 1
        acks = channel.acks
        acks.frames = acks.bytes = 0
        acks.at = None
        if channel.resend_at is None:
            channel.resend_at = now + channel.wait_ns
        if transport.wake_at is None or channel.resend_at < transport.wake_at:
            transport.wake_at = channel.resend_at
        if now >= channel.window.next_at and not channel.window.timed:
            channel.window.sent(number, now)
        packets.append((peer, Packet(place.name, (frame,), (number,), state.received.upto)))
    return packets, output.deliver
