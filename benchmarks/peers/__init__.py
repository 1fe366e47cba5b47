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
cores and was shared: the load average was 5 to 10 during this run of four rounds. Rounds of one side differ by a factor of
two; ratios within one round move less. *The least in Python* (`benchmarks/peers/least_side.py`) is no product but a bound:
two programs that check, decode, compare and encode what members do, and nothing else.

Reached: all goals for 100 B but one, clients of one server with 1,024 B, JetStream with 1,024 B (5.3; 4.0 and 4.4 in two of
the four rounds, while the disk was slow), Redis and RabbitMQ, and round trips between clients of one server (1.1 and 1.0: at
the goal, not above it). Not reached:

* Group of 4, 1,024 B: 3.8, where 4 was the goal; 4.3 in a shorter run before. A body of 1 KiB costs three times what one of 100 B
  does, and that is memory: it is copied into a bundle, into a message, into the packet for each of the others, out of the
  packet and out of the bundle, and twice by the system.
* Round trips between two members: 1.6 and 1.4 times as quick as nats-py, where 2 was the goal. In processor time it is 2.0
  and 2.6 times. The bound takes 40 µs where ours takes 137, and half of nats-py would be 109. A hop of ours is about 2,700
  bytecodes of Python in 68 functions.

Where the time goes, and what was done about it:

* A hop between members made 378 calls and took 91 µs of processor time with a load average of 6; it makes about 130 calls and
  takes 41. A message that is next in every respect takes a short way through channel and ordering (`core/quick.py`). A
  confirmation waits up to 5 ms for an answer to go with, and so do the words that a letter is done or accepted, unless
  somebody waits for them. What is alone in its turn of the loop is written at once. A program without a disk is handed its
  letters past its box. Timers are set once and look, when they ring, what there is to do.
* The window of a channel was 4 MiB. What is on its way lies in memory: with 256 KiB it stays in the caches of the processor,
  and a group with 1,024 B is quicker by a third. On a long line that would be too little, so the window follows the round
  trip (`core/window.py`). Where a confirmation waits for a disk the round trip says nothing of the line, and the window is
  4 MiB as before: with the small one the ratio to JetStream was 2.3 in a run before this one.
* Letters are read where they lie in their message and not copied out of it first, and the messages that a program gets are
  left out of the collection of garbage.
"""


def run() -> list[Row]:
    from benchmarks.peers import workloads

    return workloads.run_all()
