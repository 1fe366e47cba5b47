"""Running programs against NATS, JetStream and Redis: end-to-end deliveries per second and round trips, on one machine.

See ``benchmarks.peers.workloads`` for what each side does.
"""

from __future__ import annotations

from benchmarks.table import Row

NOTES = """
All programs are Python processes with uvloop. Ours sends with `post` and listens with `on_batch`; nats-py has a
callback for each message, and for JetStream `publish_async` and a pull consumer that acks a batch at a time; redis-py (its
blocking client, without hiredis) pipelines XADD and reads with XREADGROUP, both in batches of 1,000. Ours keeps causal order;
the peers keep the order of one sender. Synced means on disk before it is acknowledged; JetStream syncs later. Ours was
tuned on these workloads; the peers run with defaults and the batches named here.

*Processor time* is what one delivery, or one round trip, takes of all programs and servers together. This run of four rounds
was made by `make bench-peers` on two cores with nothing beside it but the brokers, of which RabbitMQ takes a fifth of a core.
Rounds of one side differ by a factor of two, and the best of each counts. *The least in Python*
(`benchmarks/peers/least_side.py`) is a bound: two programs that check, decode, compare and encode what members do, and nothing
else. *Never asleep* are loops that spin, which nats-py does not offer by itself.

In round trips ours stays awake (`thence.stay_awake`, `--stay-awake 300`): sleeping and waking costs more than a small message.
On a quiet machine `python -m benchmarks.peers "round trip"` gave 110 and 98 µs between members against 299 and 311 of nats-py
(2.7 and 3.2), and 133 and 170 µs between clients of a server against 298 and 365 (2.2 and 2.1). On a busy machine it gives
little.

Reached, in one run: all goals of throughput, and those of round trips where loops stay awake (`--stay-awake`): 2.54 and 2.76
between members (goal 2), 2.25 and 2.17 between clients of one server (goal 1). Not reached where loops sleep, as they do by
default: 1.63 and 1.48 between members, 0.84 and 0.62 between clients of one server, where nats-py is quicker.

* Group of 4, 1,024 B: 4.1 here; 4.2 and 4.5 in runs before, 4.3 and 4.4 in runs of this workload alone (goal 4). A body
  of 1 KiB costs more than twice what one of 100 B does, since it is copied at each step. With smaller batches it was 3.6 to 4.3.
* Two servers that sync, 1,024 B, against JetStream: 5.1 (goal 5), and 5.8 and 6.2 in runs before; single rounds 3.7 to 7.0,
  with what the disk does. Ours writes each message twice and waits for the disk; JetStream writes it once and does not wait.

Where the time goes, and what was done about it:

* A hop between members makes about 130 calls and takes 41 µs of processor time (378 and 91 before). A message that is next in
  every respect takes a short way (`core/member/fast_path.py`).
* With a window of 256 KiB what is on its way stays in the caches of the processor, and a group with 1,024 B is quicker by a
  third than with 4 MiB. On a long line that is too little, so the window follows the round trip (`core/transport/window.py`).
* A batch holds up to 512 KiB, not 128: what is done once for each costs a quarter.
"""


def run() -> list[Row]:
    from benchmarks.peers import workloads

    return workloads.run_all()
