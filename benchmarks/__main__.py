"""``make bench``: run benchmarks and write their tables into docs/research/benchmarks.md.

python -m benchmarks                 all that need nothing but this project
python -m benchmarks peers           beside NATS and Redis, which are installed if need be (some minutes)
python -m benchmarks servers_growth  up to 150 servers (some minutes)
python -m benchmarks servers_series  the same with agents and disks (some minutes)
python -m benchmarks memory          ten million messages (some minutes)
python -m benchmarks backlog         two million messages for a client that is away
python -m benchmarks agents          reactions of agents, beside a program with Redis
python -m benchmarks outside         the longest gap of clients outside of a change
python -m benchmarks orderings       only one; printed, and not written down
"""

from __future__ import annotations

import argparse
from importlib import import_module

from benchmarks import report
from benchmarks.table import judged, markdown

BENCHMARKS = ("simulator", "orderings", "links", "confirmation", "audit", "stores", "recovery", "takeover", "studies")
LONG = ("peers", "servers_growth", "servers_series", "memory", "backlog", "agents", "outside")
"""Not part of a run of everything; each is written down by itself."""


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, *LONG, []], help="which ones; default: all but the long ones")
    names = tuple(parser.parse_args().names) or BENCHMARKS
    sections, measured = {}, {}
    kept = True
    for name in names:
        module = import_module(f"benchmarks.{name}")
        measured[name] = rows = module.run()
        sections[name] = report.section(name, module, rows)
        print(f"{name}\n\n{markdown(rows)}\n", flush=True)
        kept = judged(rows) and kept
    written = sections if names == BENCHMARKS else {name: text for name, text in sections.items() if name in LONG}
    if written:
        report.write(written, measured)
        print(f"written to {report.PAGE.name}")
    if not kept:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
