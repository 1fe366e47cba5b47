"""The simulated network: delay, bandwidth, every fault, and the same run from the same seed in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import thence
from thence.errors import Busy, ConfigError
from thence.sim.kernel import Kernel
from thence.sim.laws import Constant, Exponential, Uniform
from thence.sim.network import Network, NetworkOptions, Partition

MS = 1_000_000


class Bench:
    """A network and what came out of it: (time, target, source, payload)."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.kernel = Kernel()
        self.seen: list[tuple[int, str, str, Any]] = []
        self.network = Network(self.kernel, NetworkOptions(**options), Random(seed), self._receive)

    def _receive(self, target: str, source: str, payload: Any) -> None:
        self.seen.append((self.kernel.now, target, source, payload))

    def send(self, payload: Any, source: str = "a", target: str = "b", size: int = 10) -> None:
        self.network.send(source, target, payload, size)

    def send_many(self, count: int) -> Bench:
        for number in range(count):
            self.send(number)
        self.kernel.run()
        return self

    @property
    def payloads(self) -> list[Any]:
        return [payload for _, _, _, payload in self.seen]

    def count(self, name: str) -> int:
        return self.network.counters()[name]

    def check_sum(self) -> None:
        """Every frame is accounted for."""
        of = self.network.counters()
        ends = of["cut"] + of["lost"] + of["dropped"] + of["delivered"] + self.network.in_flight
        assert of["sent"] + of["duplicated"] == ends


def test_a_frame_arrives_after_its_delay() -> None:
    bench = Bench(delay=Constant(3 * MS))
    bench.send("hello")
    assert bench.network.in_flight == 1
    bench.kernel.run()
    assert bench.seen == [(3 * MS, "b", "a", "hello")]
    assert bench.network.counters() == {
        "sent": 1, "cut": 0, "lost": 0, "duplicated": 0, "reordered": 0, "dropped": 0, "delivered": 1, "bytes": 10,
    }  # fmt: skip


def test_a_link_may_have_a_delay_of_its_own_in_one_direction() -> None:
    bench = Bench(delay=Constant(1), link_delays={("a", "b"): Constant(9)})
    bench.send("there")
    bench.send("back", "b", "a")
    bench.kernel.run()
    assert bench.seen == [(1, "a", "b", "back"), (9, "b", "a", "there")]


def test_a_link_with_a_bandwidth_sends_one_frame_after_the_other() -> None:
    bench = Bench(delay=Constant(MS), bandwidth_bytes_per_s=1_000, link_bandwidths_bytes_per_s={("a", "c"): 3})
    bench.send(1, size=5)  # 5 ms
    bench.send(2, size=10)  # 10 ms more
    bench.send(3, target="d", size=1)  # another link does not wait
    bench.send(4, target="c", size=1)  # a third of a second, rounded up
    bench.kernel.run()
    assert [(time, payload) for time, _, _, payload in bench.seen] == [
        (2 * MS, 3), (6 * MS, 1), (16 * MS, 2), (333_333_334 + MS, 4),
    ]  # fmt: skip


def test_a_link_may_lose_more_or_less_than_others() -> None:
    bench = Bench(delay=Constant(1), loss=0.5, link_losses={("a", "c"): 0.0, ("b", "a"): 1.0})
    for number in range(100):
        bench.send(number)
        bench.send(number, target="c")
        bench.send(number, "b", "a")
    bench.kernel.run()
    came = Counter((source, target) for _, target, source, _ in bench.seen)
    assert (came["a", "c"], came["b", "a"]) == (100, 0)
    assert 30 < came["a", "b"] < 70


def test_a_link_that_was_idle_starts_at_once() -> None:
    bench = Bench(delay=Constant(0), bandwidth_bytes_per_s=1_000)
    bench.send(1, size=1)
    bench.kernel.run(until_ns=50 * MS)
    bench.send(2, size=1)
    bench.kernel.run()
    assert [time for time, _, _, _ in bench.seen] == [1 * MS, 51 * MS]


def test_delays_differ_so_frames_overtake_unless_order_is_kept() -> None:
    free = Bench(delay=Exponential(10 * MS)).send_many(200)
    kept = Bench(delay=Exponential(10 * MS), keep_fifo=True).send_many(200)
    assert free.payloads != list(range(200))
    assert sorted(free.payloads) == kept.payloads == list(range(200))


def test_order_is_kept_per_link_and_direction_only() -> None:
    bench = Bench(delay=Constant(9), link_delays={("b", "a"): Constant(1), ("a", "c"): Constant(2)}, keep_fifo=True)
    bench.send(1)
    bench.send(2, target="c")
    bench.send(3, "b", "a")
    bench.kernel.run()
    assert bench.payloads == [3, 2, 1]


def test_loss() -> None:
    bench = Bench(loss=0.3).send_many(2_000)
    assert bench.count("lost") == pytest.approx(600, abs=100)
    assert bench.count("delivered") == 2_000 - bench.count("lost") == len(bench.seen)
    assert Bench(loss=1.0).send_many(50).seen == []


def test_duplication() -> None:
    bench = Bench(duplication=0.3, delay=Uniform(1, 5 * MS)).send_many(2_000)
    assert bench.count("duplicated") == pytest.approx(600, abs=100)
    assert bench.count("delivered") == 2_000 + bench.count("duplicated") == len(bench.seen)
    assert set(bench.payloads) == set(range(2_000))


def test_duplicates_keep_the_order_too() -> None:
    bench = Bench(duplication=0.5, delay=Uniform(1, 5 * MS), keep_fifo=True).send_many(300)
    assert bench.payloads == sorted(bench.payloads)
    assert len(bench.payloads) > 300


def test_reordering_holds_some_frames_back() -> None:
    bench = Bench(delay=Constant(MS), reordering=0.2, reorder_delay=Constant(7 * MS)).send_many(1_000)
    late = [payload for time, _, _, payload in bench.seen if time == 8 * MS]
    assert len(late) == bench.count("reordered") == pytest.approx(200, abs=50)
    assert {time for time, _, _, _ in bench.seen} == {MS, 8 * MS}


def test_a_partition_cuts_what_is_sent_while_it_lasts() -> None:
    bench = Bench(delay=Constant(10), partitions=(Partition(100, 200, (("a", "c"), ("b",))),))
    for time in (95, 100, 199, 200):
        bench.kernel.at(time, bench.send, time)
        bench.kernel.at(time, bench.send, -time, "a", "c")
    bench.kernel.run()
    assert bench.payloads == [95, -95, -100, -199, 200, -200]
    assert bench.count("cut") == 2
    bench.check_sum()


def test_those_that_no_group_names_are_together() -> None:
    bench = Bench(partitions=(Partition(0, 100, (frozenset({"a"}),)),))
    bench.send(1, "a", "x")
    bench.send(2, "x", "y")
    bench.send(3, "y", "a")
    bench.send(4, "a", "a")
    bench.kernel.run()
    assert bench.payloads == [2, 4]


def test_partitions_may_overlap() -> None:
    both = (Partition(0, 100, (("a",), ("b", "c"))), Partition(50, 150, (("a", "b"), ("c",))))
    bench = Bench(delay=Constant(1), partitions=both)
    for time in (10, 60, 120):
        bench.kernel.at(time, bench.send, f"ab{time}", "a", "b")
        bench.kernel.at(time, bench.send, f"bc{time}", "b", "c")
    bench.kernel.run()
    assert bench.payloads == ["bc10", "ab120"]


def test_a_blocked_link_carries_nothing_in_that_direction() -> None:
    bench = Bench()
    bench.send("on its way")
    bench.network.block("a", "b")
    bench.send("blocked")
    bench.send("back", "b", "a")
    bench.network.unblock("a", "b")
    bench.send("again")
    bench.kernel.run()
    assert bench.payloads == ["on its way", "back", "again"]
    assert bench.count("cut") == 1


def test_frames_on_their_way_to_a_process_can_be_dropped() -> None:
    bench = Bench()
    bench.send("dies")
    bench.send("lives", "b", "a")
    bench.network.drop_in_flight("b")
    bench.send("after")
    bench.kernel.run()
    assert bench.payloads == ["lives", "after"]
    assert bench.count("dropped") == 1
    bench.check_sum()


def test_too_many_frames_in_flight_are_refused_and_nothing_happened() -> None:
    bench = Bench(max_in_flight=3)
    for number in range(3):
        bench.send(number)
    with pytest.raises(Busy, match="3 frames are in flight, and max_in_flight is 3"):
        bench.send(3)
    assert bench.count("sent") == 3
    bench.kernel.run()
    bench.send(4)
    bench.kernel.run()
    assert bench.payloads == [0, 1, 2, 4]


def test_a_duplicate_does_not_break_the_bound() -> None:
    bench = Bench(max_in_flight=3, duplication=1.0)
    bench.send(0)
    with pytest.raises(Busy, match="2 frames are in flight, and max_in_flight is 3"):
        bench.send(1)
    assert bench.network.in_flight == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": 1.5}, "loss is a probability, from 0 to 1, not 1.5"),
        ({"loss": float("nan")}, "loss is a probability"),
        ({"link_losses": {("a", "b"): 1.1}}, "link_losses are probabilities, from 0 to 1, not 1.1"),
        ({"duplication": -0.1}, "duplication is a probability"),
        ({"reordering": 2}, "reordering is a probability"),
        ({"reordering": 0.1, "keep_fifo": True}, "keep_fifo lets nothing be reordered"),
        ({"bandwidth_bytes_per_s": 0}, "bandwidth_bytes_per_s must be at least 1"),
        ({"link_bandwidths_bytes_per_s": {("a", "b"): -1}}, "bandwidth_bytes_per_s must be at least 1"),
        ({"max_in_flight": 0}, "max_in_flight must be between 1 and 1000000, not 0"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NetworkOptions(**options)


def test_partitions_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="from 5 ns until 5 ns lasts no time"):
        Partition(5, 5, (("a",),))
    with pytest.raises(ConfigError, match="'a' is named twice in the one that starts at 0 ns"):
        Partition(0, 5, (("a", "b"), ("a",)))


FAULTS: dict[str, Any] = {
    "delay": Exponential(2 * MS),
    "bandwidth_bytes_per_s": 100_000,
    "loss": 0.1,
    "duplication": 0.1,
    "reordering": 0.1,
    "partitions": (Partition(20 * MS, 60 * MS, (frozenset({"p0", "p1"}), frozenset({"p2", "p3"}))),),
}


def faulty_run(seed: int) -> Bench:
    bench = Bench(seed, **FAULTS)
    for number in range(400):
        source, target = f"p{number % 4}", f"p{number * 7 % 5}"
        bench.kernel.at(number * MS // 4, bench.send, number, source, target, number % 90)
    bench.kernel.at(70 * MS, bench.network.drop_in_flight, "p1")
    bench.kernel.run()
    return bench


@given(st.integers(0, 10_000))
def test_every_frame_is_accounted_for_and_a_seed_repeats_itself(seed: int) -> None:
    bench = faulty_run(seed)
    bench.check_sum()
    assert bench.network.in_flight == 0
    assert bench.seen == faulty_run(seed).seen != faulty_run(seed + 1).seen


def test_the_run_is_the_same_in_other_processes_with_other_hash_seeds() -> None:
    source = Path(thence.__file__).parents[1]
    root = Path(__file__).parents[3]
    code = "from tests.unit.sim.test_network import faulty_run; print(faulty_run(5).seen)"
    printed = []
    for hash_seed in ("0", "1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{source}{os.pathsep}{root}"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        printed.append(done.stdout.strip())
    assert printed == [str(faulty_run(5).seen)] * 3
