"""Running programs against NATS, JetStream and Redis: end-to-end deliveries per second and round trips, on one machine.

See ``benchmarks.peers.workloads`` for what each side does.
"""

from __future__ import annotations

from benchmarks.table import Row

NOTES = """
Every figure is of Python processes that send and receive, all with uvloop. Ours sends with `post` and listens with
`on_batch`, also in round trips; nats-py has a callback for each message, and for JetStream `publish_async` and a pull consumer
that confirms a batch at a time; redis-py (its blocking client, without hiredis) pipelines XADD and reads with XREADGROUP, both in
batches of 1,000. Ours keeps causal order everywhere; the peers keep the order of one sender. Synced is: on disk before it is
acknowledged; JetStream stores as it comes, and syncs later. Ours was tuned on these workloads; of the peers, defaults and the
sizes of batches named here were taken, and no others tried.

*Processor time* is what one delivery, or one round trip, takes of all programs and servers together. The machine has two
cores; this run of four rounds was made by `make bench-peers` with no other work beside it but the brokers, of which RabbitMQ
takes a fifth of a core all the time. Rounds of one side differ by a factor of two, and the best of each counts; ratios within
one round move less.
*The least in Python*
(`benchmarks/peers/least_side.py`) is no product but a bound: two programs that check, decode, compare and encode what members
do, and nothing else. *Never asleep* are loops that spin, which nats-py does not offer by itself.

In round trips ours stays awake (`thence.stay_awake`, `--stay-awake 300`): to be put to sleep and woken costs more than a
small message. With nothing else on the machine that gave, in three rounds of `python -m benchmarks.peers "round trip"`,
110 and 98 µs between members against 299 and 311 of nats-py (2.7 and 3.2), and in four 133 and 170 µs between clients of a server
against 298 and 365 (2.2 and 2.1). Where others want the cores it gives little, and where messages come seldom it does nothing.

Reached, in one run: all goals of throughput, and those of round trips where loops stay awake (`--stay-awake`): 2.54 and 2.76
between members (goal 2), 2.25 and 2.17 between clients of one server (goal 1). Not reached where loops sleep, as they do by
default: 1.63 and 1.48 between members, 0.84 and 0.62 between clients of one server, where nats-py is quicker.

* Group of 4, 1,024 B: 4.1 here; 4.2 and 4.5 in runs before, 4.3 and 4.4 in runs of this workload alone (goal 4). A body of 1 KiB
  costs more than twice what one of 100 B does, and that is memory: it is copied into a bundle, into a message, into the packet
  for each of the others, out of the packet and out of the bundle, and twice by the system. With smaller bundles it was 3.6 to
  4.3.
* Two servers that sync, 1,024 B, against JetStream: 5.1 (goal 5), and 5.8 and 6.2 in runs before; single rounds 3.7 to 7.0,
  with what the disk does. Ours writes each message twice and waits for the disk; JetStream writes it once and does not wait.
  Commits are bounded (`COMMIT_BYTES`), since everything that follows waits for the one under way, the window is 16 MiB, so that
  a server takes in the next messages while its disk is busy, and snapshots wait while a backlog is on its way out.

Where the time goes, and what was done about it:

* A hop between members made 378 calls and took 91 µs of processor time with a load average of 6; it makes about 130 calls and
  takes 41. A message that is next in every respect takes a short way through channel and ordering (`core/quick.py`). A
  confirmation waits up to 5 ms for an answer to go with, and so do the words that a letter is done or accepted, unless
  somebody waits for them. What is alone in its turn of the loop is written at once. A program without a disk is handed its
  letters past its box. Timers are set once and look, when they ring, what there is to do.
* The window of a channel was 4 MiB. What is on its way lies in memory: with 256 KiB it stays in the caches of the processor,
  and a group with 1,024 B is quicker by a third. On a long line that would be too little, so the window follows the round
  trip (`core/window.py`). Where a confirmation waits for a disk the round trip says nothing of the line, and the window is
  as large as it may be from the beginning: with the small one the ratio to JetStream was 2.3.
* A bundle holds up to 512 KiB, not 128: what is done once for each costs a quarter. A server leaves what is there when it has
  started out of the collection of garbage, which was a third of its time with messages of 1 KiB.
* Letters are read where they lie in their message and not copied out of it first, and the messages that a program gets are
  left out of the collection of garbage.
"""


def run() -> list[Row]:
    from benchmarks.peers import workloads

    return workloads.run_all()
