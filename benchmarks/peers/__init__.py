"""Running programs against NATS, JetStream and Redis: end-to-end deliveries per second and round trips, on one machine.

See ``benchmarks.peers.workloads`` for what each side does.
"""

from __future__ import annotations

from benchmarks.table import Row

NOTES = """
Every figure is of Python processes that send and receive, all with uvloop. Ours sends with `post` and listens with
`on_batch`; nats-py has a callback for each message, and for JetStream `publish_async` and a pull consumer that confirms a
batch at a time; redis-py (its blocking client, without hiredis) pipelines XADD and reads with XREADGROUP, both in batches of
1,000. Ours keeps causal order everywhere; the peers keep the order of one sender. Synced is: on disk before it is
acknowledged; JetStream stores as it comes, and syncs later. Ours was tuned on these workloads; of the peers, defaults and the
sizes of batches named here were taken, and no others tried.

*Processor time* is what one delivery, or one round trip, takes of all programs and servers together. The machine has two
cores and was shared. There were two complete runs of four rounds of this version: the table is the second, with a load
average of about 10 from other work; the first had 15 to 20. Rounds of one side differ by a factor of two and more; processor
time moves less, and still by some tens of percent, most for round trips. Ratios of speed in the first run, in the order of
the table: 4.35, 1.71; 3.57, 2.43; 31.8 and 22.3, 5.43 and 4.44; 0.68, 0.47; 0.75, 0.51.

Reached in both runs: the group with 100 B, clients of one server with 100 B, JetStream with 100 B, and Redis with both
lengths. Not reached, or not in both:

* Group of 4, 1,024 B: 2.9 and 1.7, where 4 was the goal; in processor time 3.0 and 2.7. In a profile 21 % were reading from
  and writing to sockets, and about 16 % one place in libc, which is most likely the copying of memory: a body is copied into
  a bundle, into a message, into the packet for each of the others, and out of packet, message and bundle at the other side.
  The rest is spread widely.
* Clients of one server, 1,024 B: 1.7 and 2.4, where 2 was the goal; in processor time 1.8 and 2.3. JetStream, 1,024 B: 4.3
  and 5.4, where 5 was the goal; in processor time 6.8 and 5.8. These two are at their goal and not safely above it.
* Round trips: half the time of nats-py between two members was the goal, which is a ratio of 2, and no more than its time
  between clients of one server, a ratio of 1. Between members it is 0.3 to 0.7, far from it; between clients 0.9 to 1.0, and
  0.5 to 0.75 in the first run. A hop between members takes 80 to 110 µs of processor time. Without sockets, 48 % of a hop is
  in the member (ordering, channel, confirmation) and the rest around it (frames, office, session), spread over some 400
  calls. Bundles are what makes ours fast, and in a round trip each holds one letter.
"""


def run() -> list[Row]:
    from benchmarks.peers import workloads

    return workloads.run_all()
