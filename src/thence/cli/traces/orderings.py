"""``thence orderings``: which orderings there are, and what each promises."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from thence.cli import console
from thence.core.ordering import ORDERINGS, ArrivalOrder


def command(json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """List the orderings, what each promises, and what it needs.

    Every ordering delivers each message exactly once to each of its
    recipients. Beyond that, fifo means in order per sender and receiver,
    causal means never before what led to it, and total means in the same
    order everywhere. Each has a design note in docs/concepts/orderings.

    Exits with 0.

    Example: thence orderings --json
    """
    if json:
        listing = {
            name: {
                "guarantees": sorted(ordering.traits.guarantees),
                "needs_fifo_channels": ordering.traits.arrival is ArrivalOrder.FIFO,
                "direct": ordering.traits.direct,
                "options": [field.name for field in msgspec.structs.fields(ordering.traits.options)],
            }
            for name, ordering in ORDERINGS.items()
        }
        console.say_json(msgspec.json.encode(listing).decode())
        return
    rows = [
        (
            name,
            ", ".join(word for word in ("fifo", "causal", "total") if word in ordering.traits.guarantees) or "nothing",
            "FIFO" if ordering.traits.arrival is ArrivalOrder.FIFO else "any",
            ", ".join(field.name for field in msgspec.structs.fields(ordering.traits.options)) or "-",
            _summary(ordering.__module__),
        )
        for name, ordering in ORDERINGS.items()
    ]
    console.out.print(console.table(("ordering", "keeps", "channels", "options", "what it is"), rows))


def _summary(module: str) -> str:
    """Return the first sentence of an ordering's own text."""
    import sys

    text = sys.modules[module].__doc__ or ""
    return " ".join(text.split("\n\n")[0].split())
