"""Two systems joined by parallel links, against the formulas of interconnect §8 and against the daisy of its §8.2.

All messages are broadcasts of one system, A, to everybody in both. Channels within a system take ``intra_delay_ms`` and carry
``intra_mbps``, those between the systems ``inter_delay_ms`` and ``inter_mbps``.

Rules:

* A channel leads from one process to another and has its bandwidth to itself, so a broadcast occupies all channels of its
  sender once, at the same time. This is the queueing centre of §8.1 wherever one process sends everything.
* ``load`` is the sending rate as a share of the smaller bound of Eq. 1 and Eq. 2. Up to 1 both allow it; above 1 what is
  delivered is what goes through. At 0 each message has the systems to itself.
* Senders are those processes of A that are no relays. All send equally often, in an order that is drawn, with exponential gaps.
  Delays are taken at those processes of B that are no relays. So no hop is left out that Eq. 3 counts.
* ``daisy`` splits each system into as many groups as there are links, and every server shares out one slow link among the
  servers of the other system. With ``daisy-all-pairs`` each two servers have a slow link of their own: links squared.
"""

from __future__ import annotations

import math
from random import Random
from statistics import fmean
from typing import Final, Literal

import msgspec

from thence.core.topology.model import Topology
from thence.errors import InternalError
from thence.studies.parts.linked_systems import MS, SECOND, DrivenRun, Send, costs, daisy, drive, names, two
from thence.studies.parts.printed_links import printed_delivered, printed_sent
from thence.studies.study import Measures, Point
from thence.trace.recorder import Sink

WARM: Final = 0.2
"""Up to this share of all deliveries, queues are still filling."""
DONE: Final = 0.8
"""From this share on, queues may run dry, one before the other."""

IDLE_GAP_NS: Final = 10 * SECOND
"""Between two messages that have the systems to themselves."""

BITS: Final = 8
MEGA: Final = 1_000_000

Architecture = Literal["causal", "printed-delivered", "printed-sent", "daisy", "daisy-all-pairs"]


class LinksSetting(msgspec.Struct, frozen=True):
    """A point with its types."""

    architecture: Architecture
    links: int
    intra_mbps: float
    inter_mbps: float
    intra_delay_ms: float
    inter_delay_ms: float
    load: float
    processes: int
    body_bytes: int
    messages: int
    idle_messages: int

    @property
    def megabits(self) -> float:
        """The size of a message: ms in the paper's words."""
        return self.body_bytes * BITS / MEGA

    @property
    def intra_s(self) -> float:
        """How long a message occupies a channel within a system."""
        return self.megabits / self.intra_mbps

    @property
    def inter_s(self) -> float:
        """How long a message occupies a link between the systems."""
        return self.megabits / self.inter_mbps

    @property
    def offered_per_s(self) -> float:
        """The sending rate."""
        return self.load * eq12_per_s(self)

    @property
    def shared(self) -> int:
        """Among how many channels a slow link is shared out."""
        return self.links if self.architecture == "daisy" else 1


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Simulate one point."""
    setting = msgspec.convert(dict(point), LinksSetting)
    senders, receivers = names("a", setting.processes)[setting.links :], names("b", setting.processes)[setting.links :]
    topology, first_system = fabric(setting), frozenset(names("a", setting.processes))
    traffic = _traffic(setting, senders, seed)
    done = _drive(setting, topology, traffic, sink)
    sent, delivered = [at for at, _, _ in traffic], sorted(done.times(receivers[-1]))
    if len(delivered) != len(sent) or done.waiting:
        raise InternalError(f"{len(delivered)} of {len(sent)} messages came through")
    idle = not setting.load
    hops = [cost.hops for cost in costs(topology, senders, first_system)] if idle else [math.nan]
    slow = done.crossing(first_system)
    return {
        "delay_ms": _mean_ms(done, receivers),
        "local_delay_ms": _mean_ms(done, senders),
        "eq3_ms": 1_000 * eq3_s(setting),
        "derived_ms": 1_000 * derived_s(setting),
        "throughput_per_s": math.nan if idle else _rate_per_s(delivered),
        "kept_up": math.nan if idle else _rate_per_s(delivered) / _rate_per_s(sent),
        "eq12_per_s": eq12_per_s(setting),
        "eq1_per_s": 1 / setting.intra_s,
        "derived_per_s": derived_per_s(setting),
        "with_enough_links_per_s": math.nan if idle or setting.links < eq4_links(setting) else _rate_per_s(delivered),
        "messages": len(done.sent) / len(sent),
        "printed_messages": 2 * setting.processes - 1,
        "derived_messages": derived_messages(setting),
        "slow_messages": slow / len(sent),
        "hops_least": min(hops),
        "hops_most": max(hops),
    }


# What the paper says, and what follows from what is really done.


def eq12_per_s(setting: LinksSetting) -> float:
    """Eq. 1 and Eq. 2: the sending rate stays below what one system carries, and below what all links carry."""
    return min(1 / setting.intra_s, setting.links / setting.inter_s)


def eq3_s(setting: LinksSetting) -> float:
    """Eq. 3: two hops within a system, or three where the sequencer has to send a number, and one in between."""
    within = 3 - 1 / setting.links
    return within * (setting.intra_delay_ms / 1_000 + setting.intra_s) + setting.inter_delay_ms / 1_000 + setting.inter_s


def eq4_links(setting: LinksSetting) -> int:
    """Eq. 4: so many links are as fast as one system."""
    return math.ceil(setting.intra_mbps / setting.inter_mbps)


def derived_s(setting: LinksSetting) -> float:
    """Return how long a message takes when nobody else sends, in seconds.

    As printed the number is small, which Eq. 3 leaves out of account: it costs a delay, but hardly bandwidth. In causal mode
    the message itself is handed over, on both sides, unless it goes by the sequencers' own pair. In the daisy nothing is
    handed over, but one slow link carries a copy for each server of the other system.
    """
    delay_s, other_relay = setting.intra_delay_ms / 1_000, 1 - 1 / setting.links
    if setting.architecture.startswith("printed"):
        within = (2 + other_relay) * delay_s + 2 * setting.intra_s
    elif setting.architecture == "causal":
        within = (2 + 2 * other_relay) * (delay_s + setting.intra_s)
    else:
        within = 2 * (delay_s + setting.intra_s)
    return within + setting.inter_delay_ms / 1_000 + setting.shared * setting.inter_s


def derived_messages(setting: LinksSetting) -> float:
    """Return how many frames a broadcast takes on average: one to everybody else, and what relays tell each other on top.

    §8.2 gives 2 * ``processes`` - 1 for all, which is right for the daisy alone.
    """
    told = {"causal": 2.0, "printed-delivered": 1.0, "printed-sent": 1.0}.get(setting.architecture, 0.0)
    return 2 * setting.processes - 1 + told * (1 - 1 / setting.links)


def derived_per_s(setting: LinksSetting) -> float:
    """Return how many messages go through in a second when more are sent.

    As printed, a relay passes a message on when it has delivered the one before: a local delay, unless it passed that on
    itself, which of equally busy relays is the case once in ``links`` times. The daisy's slow links carry each message
    ``links`` times.
    """
    across_per_s = setting.links / setting.shared / setting.inter_s
    within_s = setting.intra_s
    if setting.architecture.startswith("printed"):
        within_s += (1 - 1 / setting.links) * setting.intra_delay_ms / 1_000
    return min(across_per_s, 1 / within_s)


# The simulation.


def fabric(setting: LinksSetting) -> Topology:
    """Return the two systems, joined."""
    sizes = (setting.processes, setting.processes)
    if setting.architecture == "causal":
        return two(sizes, setting.links)
    if setting.architecture == "printed-delivered":
        return two(sizes, setting.links, printed_delivered)
    if setting.architecture == "printed-sent":
        return two(sizes, setting.links, printed_sent)
    return daisy(setting.processes, setting.links)


def _traffic(setting: LinksSetting, senders: tuple[str, ...], seed: int) -> list[Send]:
    """Draw who sends when."""
    chance = Random(f"{seed}/traffic")
    count = setting.messages if setting.load else setting.idle_messages
    turns = [senders[number % len(senders)] for number in range(count)]
    chance.shuffle(turns)
    if not setting.load:
        return [(at * IDLE_GAP_NS, sender, None) for at, sender in enumerate(turns)]
    traffic: list[Send] = []
    now_s = 0.0
    for sender in turns:
        now_s += chance.expovariate(setting.offered_per_s)
        traffic.append((int(now_s * SECOND), sender, None))
    return traffic


def _drive(setting: LinksSetting, topology: Topology, traffic: list[Send], sink: Sink) -> DrivenRun:
    near, far = names("a", setting.processes)[: setting.links], names("b", setting.processes)[: setting.links]
    across = [way for one in near for other in far for way in ((one, other), (other, one))]
    speed = int(setting.inter_mbps * MEGA / BITS / setting.shared)
    return drive(
        topology,
        traffic,
        sink=sink,
        delay=f"constant:{int(setting.intra_delay_ms * MS)}ns",
        delays_ns=dict.fromkeys(across, int(setting.inter_delay_ms * MS)),
        bandwidth_bytes_per_s=int(setting.intra_mbps * MEGA / BITS),
        bandwidths_bytes_per_s=dict.fromkeys(across, speed),
        body_bytes=setting.body_bytes,
    )


def _mean_ms(done: DrivenRun, processes: tuple[str, ...]) -> float:
    """Return how long messages took to these processes, their own ones left out."""
    wanted = frozenset(processes)
    delays = done.delays().items()
    return (
        fmean(delay for (message, process), delay in delays if process in wanted and not message.startswith(f"{process}:")) / MS
    )


def _rate_per_s(times: list[int]) -> float:
    """Return how many a second there were, while it was in full swing."""
    first, last = int(WARM * len(times)), int(DONE * len(times)) - 1
    return (last - first) * SECOND / (times[last] - times[first])
