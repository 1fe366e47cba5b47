"""The kernel against SimPy: the same model, events per second.

The model: tokens, each passed on again and again. A hop is one timed event, its delay the next of a list of exponential
delays drawn beforehand, so that no random numbers are measured, and there is no protocol work: what remains is the
kernel, through ``post``, the listener that the simulated network uses for frames. SimPy's model is written in both of its
idioms, a process that yields timeouts and callbacks on timeouts, and the faster of the two is the peer. All must finish
their tokens at the same times in the same order.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from random import Random
from time import perf_counter
from typing import Any

import simpy

from benchmarks.table import Row, markdown
from thence.sim.kernel import Kernel

EVENTS = 100_000
TOKENS = (10, 100, 1_000, 10_000)
MEAN_DELAY_NS = 1_000_000
REPEATS = 20  # many short ones: machines have slow phases of a second, and each side must meet a quick one
SEED = 1

Delays = list[int]  # of one token, the last hop first: a hop takes one from the end
Side = Callable[[list[Delays]], list[int]]  # returns when each token finished, in the order of finishing


def draw(tokens: int) -> list[Delays]:
    rng = Random(SEED)
    return [[round(rng.expovariate(1 / MEAN_DELAY_NS)) for _ in range(EVENTS // tokens)] for _ in range(tokens)]


def ours(tokens: list[Delays]) -> list[int]:
    kernel = Kernel()
    finished: list[int] = []

    def hop(delays: Delays) -> None:
        if delays:
            kernel.post(delays.pop(), hop, delays)
        else:
            finished.append(kernel.now)

    for delays in tokens:
        kernel.post(delays.pop(), hop, delays)
    kernel.run()
    return finished


def simpy_processes(tokens: list[Delays]) -> list[int]:
    env = simpy.Environment()
    finished: list[int] = []

    def carry(delays: Delays) -> Generator[simpy.Event, Any, None]:
        while delays:
            yield env.timeout(delays.pop())
        finished.append(int(env.now))

    for delays in tokens:
        env.process(carry(delays))
    env.run()
    return finished


def simpy_callbacks(tokens: list[Delays]) -> list[int]:
    env = simpy.Environment()
    finished: list[int] = []

    def hop(event: simpy.Event) -> None:
        delays = event.value
        if delays:
            env.timeout(delays.pop(), delays).callbacks.append(hop)
        else:
            finished.append(int(env.now))

    for delays in tokens:
        env.timeout(delays.pop(), delays).callbacks.append(hop)
    env.run()
    return finished


PEERS: dict[str, Side] = {"processes": simpy_processes, "callbacks": simpy_callbacks}
SIDES = {"ours": ours, **PEERS}


def events_per_s(tokens: list[Delays]) -> dict[str, float]:
    """The best rate of each side over alternating repeats; refuses to compare sides that did different things."""
    best_s = dict.fromkeys(SIDES, float("inf"))
    outcomes = set()
    for _ in range(REPEATS):
        for name, side in SIDES.items():
            fresh = [delays[:] for delays in tokens]
            gc.collect()
            start = perf_counter()
            finished = side(fresh)
            best_s[name] = min(best_s[name], perf_counter() - start)
            outcomes.add(tuple(finished))
    if len(outcomes) != 1:
        raise AssertionError("the kernels did different things: a comparison would mean nothing")
    events = sum(map(len, tokens))
    return {name: events / seconds for name, seconds in best_s.items()}


def run() -> list[Row]:
    rows = []
    for tokens in TOKENS:
        rates = events_per_s(draw(tokens))
        idiom = max(PEERS, key=lambda name: rates[name])
        rows.append(
            Row(
                what=f"simulator, {tokens:,} events pending",
                ours=f"{rates['ours']:,.0f} events/s",
                peer=f"SimPy {simpy.__version__}, {idiom}: {rates[idiom]:,.0f} events/s",
                ratio=rates["ours"] / rates[idiom],
            )
        )
    return rows


def main() -> None:
    print(markdown(run()))


if __name__ == "__main__":
    main()
