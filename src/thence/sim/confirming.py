"""A group that confirms receipt (``core.confirmation``), run over the simulated network, and what that cost.

Members live at sites: near to those at their own site, far from all others. Delays are constant, so that a message that
comes later than its way takes has been lost before, and how much later it comes is the time that recovery took.

Rules: same options, same run; a run ends by itself, when everybody has everything and knows so.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import msgspec

from thence.core.confirmation import Confirming
from thence.core.confirmation_frames import ConfirmationOptions, Frame, Outcome, Released
from thence.errors import Busy, ConfigError
from thence.sim import kernel as kernels
from thence.sim.laws import Constant, Law, parse_law
from thence.sim.network import Network, NetworkOptions

MAX_MEMBERS = 256
MAX_MESSAGES = 1_000_000
MAX_LOSS = 0.9
MAX_EVENTS = 50_000_000
"""A run that needs more than this does not end."""

RETRY_NS = 20_000_000
"""How long a member waits before it tries again to send, when too much is unconfirmed."""


class ConfirmingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run."""

    confirmation: ConfirmationOptions = ConfirmationOptions()
    members: int = 8
    sites: int = 2
    near_ns: int = 1_000_000
    far_ns: int = 40_000_000
    messages: int = 200
    senders: int | None = None
    """Only the first so many members send; None: all."""
    body_bytes: int = 100
    gap: str = "exponential:5ms"
    loss: float = 0.0
    duplication: float = 0.0
    jitter: str | None = None
    """A law of delays for all links instead of the constant ones, which lets frames overtake each other."""
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be."""
        for name, low, high in (
            ("members", 1, MAX_MEMBERS),
            ("sites", 1, MAX_MEMBERS),
            ("messages", 0, MAX_MESSAGES),
            ("senders", 1, self.members),
            ("loss", 0, MAX_LOSS),
            ("duplication", 0, 1),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name} is {value}: it must be from {low} to {high}")


class Cost(NamedTuple):
    """What a run came to."""

    frames: int
    bytes: int
    data: int
    confirmations: int
    """Frames that do nothing but confirm."""
    requests: int
    resent: int
    repeated: int
    late: int
    """Deliveries that came later than the way takes: they, or what had to come before them, were lost."""
    recovery_ns: int
    """How much later those came, on average."""
    peak: int
    """The most messages that one member kept at one time."""
    left: int
    """How many messages are still kept when all is over: none."""
    duration_ns: int


class Group:
    """Members, the network between them, and what they handed over."""

    def __init__(self, options: ConfirmingOptions) -> None:
        """Set everything up; nothing has happened yet."""
        options.check()
        self.options = options
        self.names = tuple(f"m{number}" for number in range(options.members))
        self.kernel = kernels.Kernel(MAX_EVENTS)
        delays: dict[tuple[str, str], Law] = {
            (one, other): Constant(self.delay_ns(one, other)) for one in self.names for other in self.names if one != other
        }
        network = NetworkOptions(
            delay=parse_law(options.jitter or "constant:1ms"),
            link_delays={} if options.jitter else delays,
            loss=options.loss,
            duplication=options.duplication,
        )
        self.network = Network(self.kernel, network, Random(f"{options.seed}/network"), self._receive)
        self.members = {
            name: Confirming(name, self.names, options.confirmation, {other: self.delay_ns(name, other) for other in self.names})
            for name in self.names
        }
        self.released: dict[str, list[tuple[int, Released]]] = {name: [] for name in self.names}
        """What each member handed over, and when."""
        self.sent_at: dict[tuple[str, int], int] = {}
        self._sent = dict.fromkeys(self.names, 0)
        self.on_release: Callable[[str, Released], None] | None = None
        self._wakes: dict[str, tuple[int, kernels.Timer]] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._chance = Random(f"{options.seed}/traffic")

    def delay_ns(self, one: str, other: str) -> int:
        """Return how long a frame takes."""
        near = self.names.index(one) % self.options.sites == self.names.index(other) % self.options.sites
        return 0 if one == other else self.options.near_ns if near else self.options.far_ns

    def run(self) -> Cost:
        """Let everybody send, and run until nothing happens any more."""
        gap = parse_law(self.options.gap)
        at = 0
        for number in range(self.options.messages):
            at += gap.draw_ns(self._chance)
            sender = self._chance.choice(self.names[: self.options.senders])
            self.kernel.at(at, self.submit, sender, number.to_bytes(4, "big").rjust(self.options.body_bytes, b"\0"))
        self.kernel.run()
        return self._cost()

    def submit(self, name: str, body: bytes) -> None:
        """Let a member send, now or as soon as it may."""
        now = self.kernel.now
        try:
            outcome = self.members[name].send(body, now)
        except Busy:
            self.kernel.schedule(RETRY_NS, self.submit, name, body)
            return
        self._sent[name] += 1
        self.sent_at[name, self._sent[name]] = now
        self._follow(name, outcome)

    def _receive(self, target: str, source: str, frame: Frame) -> None:
        self._follow(target, self.members[target].arrived(source, frame, self.kernel.now))

    def _wake(self, name: str) -> None:
        del self._wakes[name]
        self._follow(name, self.members[name].timer(self.kernel.now))

    def _follow(self, name: str, outcome: Outcome) -> None:
        now = self.kernel.now
        measured: Frame | None = None
        size = 0
        for peer, frame in outcome.send:
            if frame is not measured:
                measured, size = frame, len(self._encoder.encode(frame))
            self.network.send(name, peer, frame, size)
        for released in outcome.deliver:
            self.released[name].append((now, released))
            if self.on_release is not None:
                self.on_release(name, released)
        planned = self._wakes.get(name)
        if planned is not None and planned[0] != outcome.wake:
            self.kernel.cancel(planned[1])
            del self._wakes[name]
            planned = None
        if planned is None and outcome.wake is not None:
            self._wakes[name] = (outcome.wake, self.kernel.timer(max(0, outcome.wake - now), self._wake, name))

    def _way_ns(self, origin: str, target: str) -> int:
        """Return how long a message takes if nothing is lost."""
        confirmation = self.options.confirmation
        if confirmation.scheme != "centralised":
            return self.delay_ns(origin, target)
        controller = confirmation.controller or self.names[0]
        return self.delay_ns(origin, controller) + self.delay_ns(controller, target)

    def _cost(self) -> Cost:
        late = [
            time - self.sent_at[released.origin, released.number] - self._way_ns(released.origin, name)
            for name, all_released in self.released.items()
            for time, released in all_released
        ]
        late = [ns for ns in late if ns > 0]
        counts = [member.counts for member in self.members.values()]
        network = self.network.counters()
        return Cost(
            frames=network["sent"],
            bytes=network["bytes"],
            data=sum(count.data for count in counts),
            confirmations=sum(count.confirmations for count in counts),
            requests=sum(count.requests for count in counts),
            resent=sum(count.resent for count in counts),
            repeated=sum(count.repeated for count in counts),
            late=len(late),
            recovery_ns=sum(late) // max(1, len(late)),
            peak=max(count.peak for count in counts),
            left=sum(member.kept for member in self.members.values()),
            duration_ns=self.kernel.now,
        )
