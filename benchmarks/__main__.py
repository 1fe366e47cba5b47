"""``make bench``: run every benchmark and write the table into docs/benchmarks.md.

python -m benchmarks            all of them
python -m benchmarks orderings  only one
"""

from __future__ import annotations

import argparse
import os
import platform
from importlib import import_module
from pathlib import Path

from benchmarks.table import markdown

BENCHMARKS = ("simulator", "orderings", "links", "confirmation", "audit", "stores", "recovery")
REPORT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    """Run what was asked for; a run of everything is written down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which ones; default: all")
    names = parser.parse_args().names or BENCHMARKS
    parts = []
    for name in names:
        module = import_module(f"benchmarks.{name}")
        purpose = " ".join((module.__doc__ or "").strip().split("\n\n")[0].split())
        parts.append(f"## {name}\n\n{purpose}\n\n`python -m benchmarks {name}`\n\n{markdown(module.run())}\n")
        print(parts[-1], flush=True)
    if names == BENCHMARKS:
        REPORT.write_text(_page(parts), encoding="utf-8")
        print(f"written to {REPORT.name}")


def _page(parts: list[str]) -> str:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
    head = (
        "# Benchmarks\n\n"
        "Written by `make bench`. Absolute figures depend on the machine; the ratios are taken in one run, both sides "
        "alternating, the best of several counting, since noise only ever adds. Above 1 ours is better.\n\n"
        f"Machine: {machine}.\n"
    )
    return "\n".join([head, *parts])


if __name__ == "__main__":
    main()
