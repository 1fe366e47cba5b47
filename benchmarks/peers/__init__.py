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

*Processor time* is what one delivery, or one round trip, takes of all programs and servers together. The table is of one run
of four rounds on two cores with a load average of 15 to 20 from other work. That blurs speed a lot: rounds of one side differ
by a factor of two and more, and in a quieter moment, with three rounds and before the last changes, the group with 100 B came
to 1,104,434 messages/s against 130,001. It blurs processor time less, but that too moves by some tens of percent.

Goals that were missed:

* Group of 4, 1,024 B: 1.7 in speed and 2.7 in processor time, where 4 was the goal. In a profile 21 % were reading from and
  writing to sockets, and about 16 % one place in libc, which is most likely the copying of memory: a body is copied into a
  bundle, into a message, into the packet for each of the others, and out of packet, message and bundle at the other side. The
  rest is spread widely.
* Round trips: half the time of nats-py between two members was the goal, and no more than its time between clients of one
  server. Neither was reached: 0.5 to 0.7, and 0.5 to 0.75. Between members a hop takes about 80 µs of processor time. Without
  sockets, 48 % of a hop is in the member (ordering, channel, confirmation) and the rest around it (frames, office, session),
  spread over some 400 calls. Bundles are what makes ours fast, and in a round trip each holds one letter.
"""


def run() -> list[Row]:
    from benchmarks.peers import workloads

    return workloads.run_all()
