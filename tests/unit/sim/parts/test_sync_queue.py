"""What has to wait for the disk happens when that has synced, in order, and never in another life."""

from __future__ import annotations

from functools import partial
from random import Random

from thence.sim.disk import Disk, DiskOptions
from thence.sim.kernel import Kernel
from thence.sim.laws import Constant
from thence.sim.parts import sync_queue
from thence.sim.parts.sync_queue import Alarm, SyncQueue

SYNC_NS = 1_000


def made() -> tuple[Kernel, SyncQueue, list[object]]:
    kernel = Kernel()
    queue = SyncQueue(Disk(DiskOptions(sync_delay=Constant(SYNC_NS)), Random(1)), kernel, lambda: "snapshot")
    return kernel, queue, []


def test_what_needs_no_disk_happens_at_once() -> None:
    _, queue, done = made()
    queue.store((), partial(done.append, "now"))
    assert done == ["now"]
    assert queue.idle


def test_what_is_stored_is_durable_before_what_follows_and_order_is_kept() -> None:
    kernel, queue, done = made()
    queue.store(["a"], lambda: done.append(queue.disk.durable_upto))
    queue.store((), partial(done.append, "behind it"))
    queue.store(["b"], lambda: done.append((kernel.now, queue.disk.durable_upto)))
    assert done == []
    assert not queue.idle
    kernel.run()
    assert done == [1, "behind it", (2 * SYNC_NS, 2)], "records that come while the disk is busy share the next sync"
    assert queue.idle


def test_nothing_of_an_earlier_life_happens() -> None:
    kernel, queue, done = made()
    queue.store(["a"], partial(done.append, "never"))
    queue.crash()
    queue.store(["b"], partial(done.append, "then"))
    kernel.run()
    assert done == ["then"]
    assert queue.disk.records() == ("b",)


def test_a_snapshot_replaces_many_records() -> None:
    kernel, queue, done = made()
    queue.store(range(sync_queue.COMPACT_EVERY), partial(done.append, "then"))
    kernel.run()
    assert (queue.disk.snapshot, queue.disk.records(), done) == ("snapshot", (), ["then"])


def test_an_alarm_rings_at_the_earliest_time_of_its_life() -> None:
    kernel, queue, rung = made()
    alarm = Alarm(kernel, queue, lambda: rung.append(kernel.now))
    alarm.set(500)
    alarm.set(200)
    alarm.set(900)
    alarm.set(None)
    kernel.run()
    assert rung == [200]
    alarm.set(1_000)
    queue.drop()
    alarm.forget()
    kernel.run()
    assert rung == [200]
