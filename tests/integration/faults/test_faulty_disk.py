"""The faulty disk does what it is told, and no more; and the store of a server keeps on it what it promised, unless syncs lie."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.support.servers.faulty_disk import Disk
from thence.errors import StorageError
from thence.storage.store import Store

PRELUDE = """
import os, signal, sys
root = sys.argv[1]
def opened(name, flags=os.O_RDWR | os.O_CREAT):
    return os.open(root + "/" + name, flags, 0o600)
def attempt(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return error.errno
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    (tmp_path / "data").mkdir()
    return Disk(tmp_path / "data", tmp_path / "beside")


def run(disk: Disk, program: str, *, prelude: str = PRELUDE) -> subprocess.CompletedProcess[str]:
    """Run a program on the disk."""
    command = [sys.executable, "-c", prelude + program, str(disk.root)]
    environment = {**os.environ, **disk.environment()}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)


def said(disk: Disk, program: str) -> list[str]:
    """Run a program that must end well; return what it printed."""
    done = run(disk, program)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_nothing_is_wrong_unless_it_is_ordered(disk: Disk) -> None:
    program = 'f = opened("a"); print(os.write(f, bytes(9)), os.pwritev(f, [b"x", b"yz"], 2), os.fsync(f)); os.ftruncate(f, 7)'
    assert said(disk, program) == ["9", "3", "None"]
    assert (disk.root / "a").read_bytes() == b"\0\0xyz\0\0"
    assert +disk.counts == {"writes": 2, "syncs": 1, "changes of names": 1}


def test_writes_are_short(disk: Disk) -> None:
    disk.set(short_one_in=1)
    (written,) = said(disk, 'print(os.pwrite(opened("a"), bytes(100), 0))')
    assert 1 <= int(written) < 100
    assert (disk.root / "a").stat().st_size == int(written)
    assert disk.counts["short writes"] == 1


def test_so_many_writes_and_syncs_fail(disk: Disk) -> None:
    disk.set(eio_writes=1, eio_syncs=2)
    program = (
        'f = opened("a"); print(*(attempt(os.write, f, b"xy") for _ in range(2)), *(attempt(os.fsync, f) for _ in range(3)))'
    )
    assert said(disk, program) == ["5", "2", "5", "5", "None"]
    assert (disk.counts["writes with EIO"], disk.counts["syncs with EIO"]) == (1, 2)


def test_a_full_disk_takes_what_fits_and_what_makes_no_file_larger(disk: Disk) -> None:
    disk.set(no_room=1, room_bytes=10)
    program = (
        'f = opened("a"); print(os.write(f, bytes(8)), os.write(f, bytes(8)), attempt(os.write, f, b"x"), os.pwrite(f, b"x", 0))'
    )
    assert said(disk, program + '; print(attempt(opened, "b"))') == ["8", "2", "28", "1", "28"]
    assert disk.counts["writes without room"] == 3
    disk.heal()
    assert said(disk, 'print(os.write(opened("b"), b"xy"))') == ["2"]


def test_a_torn_write_kills(disk: Disk) -> None:
    disk.set(torn_writes=1)
    assert run(disk, 'os.write(opened("a"), bytes(100))').returncode == -9
    assert (disk.root / "a").stat().st_size < 100
    assert disk.counts["torn writes"] == 1


def test_the_calendar_jumps_and_monotonic_time_does_not(disk: Disk) -> None:
    disk.set(clock_ns=-3 * 86_400 * 10**9)
    program = "import time; print(time.time(), time.clock_gettime(time.CLOCK_REALTIME), time.monotonic())"
    now, exact, monotonic = map(float, said(disk, program))
    assert now == pytest.approx(time.time() - 3 * 86_400, abs=60)
    assert exact == pytest.approx(now, abs=1)
    assert monotonic == pytest.approx(time.monotonic(), abs=60)
    assert disk.counts["wrong times read"] >= 2


def test_other_files_are_left_alone(disk: Disk, tmp_path: Path) -> None:
    disk.set(eio_writes=9, eio_syncs=9, no_room=1, short_one_in=1)
    program = f"f = os.open({str(tmp_path / 'data-2')!r}, os.O_RDWR | os.O_CREAT); print(os.write(f, bytes(50)), os.fsync(f))"
    assert said(disk, program) == ["50", "None"]
    assert not +disk.counts


UNSYNCED = """
f = opened("a")
os.write(f, b"one")
os.fsync(f)
d = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
g = opened("b.tmp")
os.write(g, b"whole")
os.fsync(g)
os.fsync(d)
os.write(f, b"two")
os.pwrite(f, b"O", 0)
os.rename(root + "/b.tmp", root + "/b")
h = opened("c")
os.write(h, b"never")
os.unlink(root + "/a")
die()
"""


def test_power_loss_spares_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    seen: dict[str, set[bytes | None]] = {"a": set(), "b": set(), "b.tmp": set(), "c": set()}
    for seed in range(24):
        there = Disk(tmp_path / f"{seed}" / "data", tmp_path / f"{seed}" / "beside")
        there.root.mkdir()
        assert run(there, UNSYNCED).returncode == -9
        lost = there.lose_power(Random(seed))
        for name, found in seen.items():
            path = there.root / name
            found.add(path.read_bytes() if path.exists() else None)
        synced = (there.root / "a").read_bytes() if (there.root / "a").exists() else b"one"
        assert synced[1:3] == b"ne"
        assert (lost["names undone"] > 0) == ((there.root / "a").exists())
        whole = [path.read_bytes() for path in (there.root / "b", there.root / "b.tmp") if path.exists()]
        assert whole == [b"whole"]
    assert {None, b"One"} < seen["a"]
    assert {b"one", b"onetwo"} & seen["a"]
    assert seen["b"] == seen["b.tmp"] == {None, b"whole"}
    assert {None, b"never", b""} < seen["c"]


FAILED_SYNC = """
f = opened("a")
os.write(f, b"gone")
attempt(os.fsync, f)
os.pwrite(f, b"kept", 9)
os.fsync(f)
os.fsync(os.open(root, os.O_RDONLY))
die()
"""


def test_a_write_whose_sync_failed_is_not_saved_by_the_next_sync(disk: Disk) -> None:
    disk.set(eio_syncs=1)
    run(disk, FAILED_SYNC)
    lost = disk.lose_power(Random(3))
    assert sum(lost.values()) == 1
    assert (disk.root / "a").read_bytes().endswith(b"kept")


def test_what_an_earlier_life_left_unsynced_stays_unsynced(disk: Disk) -> None:
    run(disk, 'f = opened("a"); os.write(f, b"x" * 50); os.fsync(f); os.write(f, b"y" * 50); die()')
    run(disk, 'f = opened("b"); os.fsync(f); die()')
    lost = disk.lose_power(Random(1))
    assert lost["names undone"] + sum(count for what, count in lost.items() if what.startswith("unsynced")) >= 1
    assert not disk.unsynced()


STORE = """
import sys
from pathlib import Path
from thence.storage.store import Store
store = Store.open(Path(sys.argv[1]), "test")
print("before", store.durable, flush=True)
for number in range(store.durable, store.durable + 60):
    store.append(b"%d" % (number + 1) * 20)
    if number % 3 == 0:
        print("durable", store.commit(), flush=True)
    if number % 25 == 24:
        store.compact(b"upto %d" % store.appended, store.appended)
"""


def durable(disk: Disk) -> int:
    """Let a store be written to until something kills or stops it; return what it had called durable."""
    numbers = run(disk, STORE, prelude="").stdout.split()[1::2]
    return int(numbers[-1]) if numbers else 0


def found(disk: Disk) -> int:
    """Open the store that is left, check what is in it, and return how far it goes."""
    store = Store.open(disk.root, "test")
    try:
        snapshot, entries = store.take_recovered()
        upto = int(snapshot.split()[1]) if snapshot else 0
        assert entries == [b"%d" % number * 20 for number in range(upto + 1, upto + 1 + len(entries))]
        return upto + len(entries)
    finally:
        store.close()


@pytest.mark.parametrize("fault", ["torn_writes", "eio_syncs", "eio_writes", "no_room", "short_one_in"])
def test_the_store_keeps_what_it_called_durable(fault: str, disk: Disk) -> None:
    """Over a power loss in the middle of each kind of trouble, again and again."""
    chance = Random(f"faulty disk/{fault}")
    least = happened = 0
    for _ in range(6):
        least = max(least, durable(disk))
        disk.set(**{fault: 3 if fault == "short_one_in" else 1, "room_bytes": chance.randrange(4_000)})
        least = max(least, durable(disk))
        happened += sum(disk.lose_power(chance).values())
        disk.heal()
        assert found(disk) >= least
    faults = [what for what in disk.counts if what not in ("writes", "syncs", "changes of names") and disk.counts[what]]
    assert len(faults) == 1
    assert happened


@pytest.mark.parametrize("fault", ["eio_syncs", "eio_writes"])
def test_a_disk_that_fails_while_a_store_is_opened_is_named(fault: str, disk: Disk) -> None:
    """Whatever call it is that fails. Some failures are nothing to stop for: then it opens."""
    for calls in range(1, 4):
        disk.set(**{fault: calls})
        done = run(disk, "from thence.storage.store import Store\nfrom pathlib import Path\n" + OPEN, prelude="")
        assert done.returncode == 0, done.stderr
        assert done.stdout in (f"StorageError {disk.root}\n", "opened\n")
    counter = {"eio_syncs": "syncs with EIO", "eio_writes": "writes with EIO"}[fault]
    assert disk.counts[counter]


OPEN = """
import sys
from thence.errors import StorageError
try:
    Store.open(Path(sys.argv[1]), "test")
    print("opened")
except StorageError as error:
    print("StorageError", sys.argv[1] if sys.argv[1] in str(error) else error)
"""


def test_the_store_loses_what_syncs_lied_about(disk: Disk) -> None:
    """The mistake that all this must notice: a sync that does nothing."""
    disk.set(lie=1)
    losses = 0
    for seed in range(6):
        least = durable(disk)
        disk.lose_power(Random(seed))
        try:
            losses += found(disk) < least
        except StorageError:
            losses += 1
            break
    assert losses
    assert disk.counts["syncs that lied"] > 0
