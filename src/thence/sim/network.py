"""The network between simulated processes: late, lossy, and out of order, exactly as asked for.

It exists so that an ordering meets everything a real network does, and meets it again when the run is repeated.

Rules:

* A frame is opaque: a payload and a size. ``receive(target, source, payload)`` is called when it arrives; whether
  the target is up is the caller's business.
* Chance comes from one ``Random``, drawn per frame in this order: loss, duplication, then for each copy reordering,
  its extra delay, and the delay. What an option rules out is not drawn.
* Nothing depends on the order of a set or on ``hash()``.
* A partition or a block stops what is sent while it lasts; what is on its way already arrives.
* A link sends one frame after the other: a frame leaves when those before it have left and its own bytes are
  through.
* ``sent + duplicated == cut + lost + dropped + delivered + in_flight``, always.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Protocol

from thence.errors import Busy, ConfigError
from thence.sim.kernel import Kernel
from thence.sim.laws import Constant, Exponential, Law

MAX_IN_FLIGHT = 1_000_000
"""Frames on their way at one time, in the whole network, unless told otherwise."""

_NS_PER_S = 1_000_000_000

Link = tuple[str, str]
"""From, to."""

Receive = Callable[[str, str, Any], object]
"""Called with target, source and payload."""


class Tap(Protocol):
    """Hears of every frame that a network carries; it changes nothing."""

    def sent(self, source: str, target: str, payload: Any) -> None:
        """Hear that a frame is sent, before it is decided whether it gets lost."""

    def arrived(self, source: str, target: str, payload: Any) -> None:
        """Hear that a frame has arrived, after its target has handled it."""


@dataclass(frozen=True, slots=True)
class Partition:
    """From ``start_ns`` until before ``end_ns``, only members of one group reach each other.

    Processes that no group names are one more group.
    """

    start_ns: int
    end_ns: int
    groups: tuple[Collection[str], ...]

    def __post_init__(self) -> None:
        if not 0 <= self.start_ns < self.end_ns:
            raise ConfigError(f"partitions: one from {self.start_ns} ns until {self.end_ns} ns lasts no time")
        names = [name for group in self.groups for name in sorted(group)]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"partitions: {name!r} is named twice in the one that starts at {self.start_ns} ns")


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    delay: Law = field(default_factory=lambda: Constant(1_000_000))
    link_delays: Mapping[Link, Law] = field(default_factory=dict)
    bandwidth_bytes_per_s: int | None = None  # of every link; None: infinite
    link_bandwidths_bytes_per_s: Mapping[Link, int] = field(default_factory=dict)
    loss: float = 0.0
    link_losses: Mapping[Link, float] = field(default_factory=dict)
    duplication: float = 0.0
    reordering: float = 0.0
    reorder_delay: Law = field(default_factory=lambda: Exponential(50_000_000))  # on top, for those that are reordered
    keep_fifo: bool = False  # frames of one link arrive in the order sent, as over a TCP connection
    partitions: tuple[Partition, ...] = ()
    max_in_flight: int = MAX_IN_FLIGHT

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} is a probability, from 0 to 1, not {getattr(self, name)!r}")
        for loss in self.link_losses.values():
            if not 0.0 <= loss <= 1.0:
                raise ConfigError(f"link_losses are probabilities, from 0 to 1, not {loss!r}")
        for speed in (self.bandwidth_bytes_per_s, *self.link_bandwidths_bytes_per_s.values()):
            if speed is not None and speed < 1:
                raise ConfigError(f"bandwidth_bytes_per_s must be at least 1, or None for infinite, not {speed}")
        if self.keep_fifo and self.reordering:
            raise ConfigError(f"reordering is {self.reordering}, but keep_fifo lets nothing be reordered: drop one of them")
        if not 1 <= self.max_in_flight <= MAX_IN_FLIGHT:
            raise ConfigError(f"max_in_flight must be between 1 and {MAX_IN_FLIGHT}, not {self.max_in_flight}")


@dataclass(slots=True)
class _Counters:
    sent: int = 0
    cut: int = 0  # by a partition or a block
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    dropped: int = 0  # on their way to a process when drop_in_flight was called for it
    delivered: int = 0
    bytes: int = 0  # of what was sent


@dataclass(slots=True)
class _LinkState:
    delay: Law
    bandwidth_bytes_per_s: int | None
    loss: float
    busy_until_ns: int = 0
    last_arrival_ns: int = 0
    blocked: bool = False


_Flight = tuple[str, str, Any, int]  # target, source, payload, how often the target's frames had been dropped when it left


class Network:
    """Carries frames on a kernel's time."""

    def __init__(self, kernel: Kernel, options: NetworkOptions, rng: Random, receive: Receive) -> None:
        self.options = options
        self.taps: list[Tap] = []
        self.in_flight = 0  # those that drop_in_flight condemned included, until their time comes
        self._kernel = kernel
        self._rng = rng
        self._receive = receive
        self._counters = _Counters()
        self._links: dict[Link, _LinkState] = {}
        self._drops: dict[str, int] = {}
        self._partitions = [
            (each.start_ns, each.end_ns, {name: side for side, group in enumerate(each.groups) for name in group})
            for each in options.partitions
        ]
        self._room = options.max_in_flight - (2 if options.duplication else 1)

    def counters(self) -> dict[str, int]:
        """What happened so far: frames by what became of them, and bytes sent."""
        return asdict(self._counters)

    def send(self, source: str, target: str, payload: Any, size_bytes: int) -> None:
        """Send a frame; what becomes of it, chance decides."""
        if self.in_flight > self._room:
            raise Busy(f"{self.in_flight} frames are in flight, and max_in_flight is {self.options.max_in_flight}")
        for tap in self.taps:
            tap.sent(source, target, payload)
        options, counters, rng = self.options, self._counters, self._rng
        counters.sent += 1
        counters.bytes += size_bytes
        link = self._links.get((source, target)) or self._link(source, target)
        if link.blocked or (self._partitions and self._is_cut(source, target)):
            counters.cut += 1
            return
        departure_ns = self._kernel.now if link.bandwidth_bytes_per_s is None else self._departure_ns(link, size_bytes)
        if link.loss and rng.random() < link.loss:
            counters.lost += 1
            return
        flight = (target, source, payload, self._drops.get(target, 0))
        if options.duplication and rng.random() < options.duplication:
            counters.duplicated += 1
            self._launch(link, departure_ns, flight)
        self._launch(link, departure_ns, flight)

    def block(self, source: str, target: str) -> None:
        """Stop what is sent over a link, in this direction, until it is unblocked."""
        self._link(source, target).blocked = True

    def unblock(self, source: str, target: str) -> None:
        """Let a link carry frames again."""
        self._link(source, target).blocked = False

    def drop_in_flight(self, process: str) -> None:
        """Let nothing arrive that is on its way to a process now: its connections died with it."""
        self._drops[process] = self._drops.get(process, 0) + 1

    def _link(self, source: str, target: str) -> _LinkState:
        key = (source, target)
        link = self._links.get(key)
        if link is None:
            speed = self.options.link_bandwidths_bytes_per_s.get(key, self.options.bandwidth_bytes_per_s)
            loss = self.options.link_losses.get(key, self.options.loss)
            link = self._links[key] = _LinkState(self.options.link_delays.get(key, self.options.delay), speed, loss)
        return link

    def _is_cut(self, source: str, target: str) -> bool:
        now = self._kernel.now
        return any(start <= now < end and sides.get(source) != sides.get(target) for start, end, sides in self._partitions)

    def _departure_ns(self, link: _LinkState, size_bytes: int) -> int:
        """When the last byte is on the link; the time is rounded up, so that no link is faster than it says."""
        now = self._kernel.now
        if link.bandwidth_bytes_per_s is None:
            return now
        passing_ns = -(-size_bytes * _NS_PER_S // link.bandwidth_bytes_per_s)
        link.busy_until_ns = max(now, link.busy_until_ns) + passing_ns
        return link.busy_until_ns

    def _launch(self, link: _LinkState, departure_ns: int, flight: _Flight) -> None:
        options = self.options
        arrival_ns = departure_ns
        if options.reordering and self._rng.random() < options.reordering:
            self._counters.reordered += 1
            arrival_ns += options.reorder_delay.draw_ns(self._rng)
        arrival_ns += link.delay.draw_ns(self._rng)
        if options.keep_fifo:
            # Equal times keep the order of sending: the kernel sees to that.
            arrival_ns = link.last_arrival_ns = max(arrival_ns, link.last_arrival_ns)
        self.in_flight += 1
        self._kernel.post(arrival_ns - self._kernel.now, self._arrive, flight)

    def _arrive(self, flight: _Flight) -> None:
        target, source, payload, drops = flight
        self.in_flight -= 1
        if drops != self._drops.get(target, 0):
            self._counters.dropped += 1
            return
        self._counters.delivered += 1
        self._receive(target, source, payload)
        for tap in self.taps:
            tap.arrived(source, target, payload)
