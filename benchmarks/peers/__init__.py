"""Running programs against NATS, JetStream and Redis: end-to-end deliveries per second and round trips, on one machine.

See ``benchmarks.peers.workloads`` for what each side does.
"""

from __future__ import annotations

from benchmarks.table import Row


def run() -> list[Row]:
    from benchmarks.peers import workloads

    return workloads.run_all()
