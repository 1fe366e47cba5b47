"""Parallel links that are the bottleneck: how much of linear is reached with 1, 2, 4 and 8 pairs of relays, in simulated time.

Two domains of 17 processes; every link carries about 100 messages of 1 kB a second; all senders are in one domain and offer,
to everyone, twice of what the links can carry. What is counted is what a process of the other domain delivers per simulated
second, from the first to the last. Linear is the rate of one pair times the number of pairs. Ours is ``mode = "causal"``; Fig. 5
of interconnect, numbered per peer, is ``studies.parts.printed_links``. It waits for one delivery in the far domain per message.
The LAN takes 1 ms, and then 5 ms, with which Fig. 5 can pass on no more than 200 messages a second.

Everything is simulated, so the figures are the same on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.table import Row, markdown
from thence.studies.parts.linked_systems import MS, Mode, drive, two
from thence.studies.parts.printed_links import printed_delivered, printed_sent

PAIRS = (1, 2, 4, 8)
LAN_MS = (1, 5)
BODY_BYTES = 1_000
MESSAGE_BYTES = BODY_BYTES + 56
"""A message on the link, with its number and what the simulator adds to every frame and packet; at most."""
MESSAGES_PER_S = 100
"""What one pair carries."""
PROCESSES = 17
SENDERS = tuple(f"a{number}" for number in range(10, 18))
"""None of them a relay, so that the printed protocol shares them out evenly."""
SECONDS = 3


class Protocol(NamedTuple):
    """Which kind of link."""

    name: str
    mode: Mode


OURS = Protocol("causal", "causal")
PRINTED = (
    Protocol("printed, waits for delivery", printed_delivered),
    Protocol("printed, waits for sending", printed_sent),
)


def rate(protocol: Protocol, pairs: int, lan_ms: int, seconds: int = SECONDS) -> float:
    """Return how many messages a second come through."""
    count = pairs * MESSAGES_PER_S * seconds
    gap_ns = 1_000 * MS // (2 * pairs * MESSAGES_PER_S)
    run = drive(
        two((PROCESSES, PROCESSES), pairs, protocol.mode),
        [(at * gap_ns, SENDERS[at % len(SENDERS)], None) for at in range(count)],
        delay=f"constant:{lan_ms}ms",
        link_delay="constant:50ms",
        link_bandwidth_bytes_per_s=MESSAGE_BYTES * MESSAGES_PER_S,
        body_bytes=BODY_BYTES,
    )
    times = run.times("b17")
    if len(times) != count or run.waiting:
        raise AssertionError(f"{len(times)} of {count} messages came through")
    return (count - 1) * 1_000 * MS / (times[-1] - times[0])


def run() -> list[Row]:
    rows = []
    for lan_ms in LAN_MS:
        single = rate(OURS, 1, lan_ms)
        ours = {pairs: rate(OURS, pairs, lan_ms) for pairs in PAIRS}
        rows += [
            Row(
                what=f"LAN {lan_ms} ms, {pairs} pairs, against linear",
                ours=f"{ours[pairs]:,.0f} messages/s",
                peer=f"linear: {single * pairs:,.0f} messages/s",
                ratio=ours[pairs] / (single * pairs),
            )
            for pairs in PAIRS
        ]
        for protocol in PRINTED:
            for pairs in PAIRS:
                theirs = rate(protocol, pairs, lan_ms)
                rows.append(
                    Row(
                        what=f"LAN {lan_ms} ms, {pairs} pairs, against Fig. 5",
                        ours=f"{ours[pairs]:,.0f} messages/s",
                        peer=f"{protocol.name}: {theirs:,.0f} messages/s, {theirs / (single * pairs):.2f} of linear",
                        ratio=ours[pairs] / theirs,
                    )
                )
    return rows


def main() -> None:
    print(markdown(run()))


if __name__ == "__main__":
    main()
