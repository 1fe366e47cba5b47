"""A model for tests: one queue with one server, whose mean wait is known from a formula."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from random import Random

from thence.studies.models import Measures, Point
from thence.trace.events import Event
from thence.trace.recorder import Sink


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Customers come at random; ``service`` is random too, or always the same. ``fail`` and ``slow_s`` are for tests."""
    chance = Random(f"{seed}/queue")
    load, customers = float(point["load"]), int(point["customers"])
    if point.get("fail") == point["load"]:
        raise ZeroDivisionError("asked to fail")
    if "slow_s" in point:
        time.sleep(float(point["slow_s"]))
    if "log" in point:
        with Path(str(point["log"])).open("a", encoding="utf-8") as log:
            log.write(f"{os.getpid()} {seed}\n")
    wait, total = 0.0, 0.0
    for number in range(customers):
        sink(Event(process="queue", index=number, kind="send", message=f"m{number}", to=("queue",)))
        total += wait
        service = chance.expovariate(1) if point["service"] == "random" else 1.0
        wait = max(0.0, wait + service - chance.expovariate(load))
    formula = load / (1 - load) if point["service"] == "random" else load / (2 * (1 - load))
    return {"wait": total / customers, "formula": formula, "nothing": math.nan, "events": customers}
