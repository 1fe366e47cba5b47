"""``make bench-peers``: measure beside NATS, Redis and RabbitMQ, and write the table into docs/research/benchmarks.md.

python -m benchmarks.peers                      all of it, written down
python -m benchmarks.peers group --rounds 2     only workloads with this in their name, printed
"""

from __future__ import annotations

import argparse

from benchmarks.peers import workloads
from benchmarks.table import markdown


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of workloads; default: all")
    parser.add_argument("--rounds", type=int, default=workloads.ROUNDS)
    parser.add_argument("--sizes", type=int, nargs="*", default=workloads.BODY_BYTES)
    given = parser.parse_args()
    print(markdown(workloads.run_all(given.names, given.sizes, given.rounds)))


if __name__ == "__main__":
    main()
