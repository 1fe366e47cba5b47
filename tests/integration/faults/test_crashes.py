"""A short crash campaign in every test run, and the verdict that it relies on shown what it must not let through."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.support.campaigns import crash_copies
from tests.support.campaigns.crash_clients import Line
from tests.support.campaigns.crash_copies import KINDS
from tests.support.campaigns.crash_fabric import MAX_WRONG, Fabric
from tests.support.campaigns.crash_faults import Fault
from tests.support.campaigns.crash_plan import groups
from tests.support.campaigns.crash_verdict import judge_clients, unfinished
from tests.support.campaigns.crashes import MAX_WRONG_TOLD, Crashes, Options, replay, run_once
from tests.support.servers.faulty_disk import Control


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_out_of_order_whatever_crashes(tmp_path: Path) -> None:
    options = Options(seed=1, fault_s=8.0, mean_pause_s=0.3, small=True)
    outcome = run_once(options, tmp_path / "run")
    assert not outcome.wrong, "\n".join([*outcome.wrong[:MAX_WRONG_TOLD], replay(options)])
    assert outcome.counts["accepted"] > 100
    assert not outcome.never


async def test_a_run_that_is_given_up_ends_the_faults_that_are_under_way(tmp_path: Path) -> None:
    """Otherwise they start servers and clients again that nobody stops."""
    ended: list[str] = []

    async def last(_: Fabric) -> bool:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("a fault")
        return True

    crashes = Crashes(Options(seed=1, mean_pause_s=0.001, small=True), tmp_path)
    crashes.first_kinds, crashes.kinds = [], (Fault("that lasts", 1, last),)
    crashes.fabric.wrong += ["broken"] * MAX_WRONG
    asyncio.get_running_loop().call_later(0.1, crashes.fabric.wrong.append, "broken")
    with pytest.raises(TimeoutError, match="given up"):
        await crashes.spoil()
    assert ended


async def test_a_program_that_another_one_has_replaced_is_ended_too(tmp_path: Path) -> None:
    fabric = Fabric(Options(seed=1, small=True), tmp_path)
    for name in ("logs", "clocks"):
        (tmp_path / name).mkdir()
    domain = next(iter(groups(fabric.topology)))
    fabric.clocks[domain] = Control(tmp_path / "clocks" / domain)
    fabric.start_worker(domain)
    older = fabric.workers[domain]
    fabric.start_worker(domain)
    await fabric.close()
    assert older.returncode is not None


@pytest.mark.campaign
def test_disks_that_lie_are_noticed(tmp_path: Path) -> None:
    """The planted mistake: without it the same run has nothing wrong."""
    outcome = run_once(Options(seed=1, fault_s=12.0, mean_pause_s=0.5, small=True, lie=True), tmp_path / "run")
    assert outcome.wrong
    assert outcome.faults["syncs that lied"] > 0
    assert outcome.faults["unsynced changes taken by power losses"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(KINDS)), ids=KINDS)
def test_nothing_vanishes_without_a_word_when_a_server_goes_back(seed: int, tmp_path: Path) -> None:
    options = Options(seed=seed, fault_s=3.0, mean_gap_s=0.08)
    outcome = crash_copies.run_once(options, tmp_path / "run")
    assert not outcome.wrong, "\n".join([*outcome.wrong[:MAX_WRONG_TOLD], crash_copies.replay(options)])
    assert not outcome.never
    assert outcome.counts["accepted"] > 100
    assert outcome.counts["servers that refuse each other"] > 0


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["rollback", "clone"])
def test_servers_that_trust_old_copies_are_noticed(kind: str, tmp_path: Path) -> None:
    """The planted mistake: servers that go on with whoever meets them. Whether numbers meet then is chance, so it tries again."""
    program = "tests.support.campaigns.trusting_server"
    for seed in range(KINDS.index(kind), 8 * len(KINDS), len(KINDS)):
        options = Options(seed=seed, fault_s=6.0, mean_gap_s=0.08, program=program)
        outcome = crash_copies.run_once(options, tmp_path / f"run-{seed}")
        if any("vanished without a word" in what for what in outcome.wrong):
            return
    pytest.fail("eight rounds with servers that trust old copies, and nothing vanished")


START, END = Line("start"), Line("end")


def tried(message: str, *to: str) -> list[Line]:
    return [Line("try", message, list(to)), Line("sent", message)]


def got(message: str, position: int) -> Line:
    return Line("got", message, position=position)


def found(folder: Path, **histories: list[Line]) -> str:
    """Return what is wrong with these histories of clients."""
    (folder / "clients").mkdir(parents=True)
    for name, lines in histories.items():
        written = b"".join(msgspec.json.encode(line) + b"\n" for line in (START, *lines))
        (folder / "clients" / f"{name}.jsonl").write_bytes(written)
    return "\n".join([*judge_clients(folder)[1], unfinished(folder)])


def test_a_run_without_faults_is_let_through(tmp_path: Path) -> None:
    ann = [*tried("1", "bob"), *tried("2", "bob"), got("3", 1)]
    assert not found(tmp_path, ann=ann, bob=[got("1", 1), *tried("3", "ann"), got("2", 2)]).strip()


def test_what_a_kill_excuses_is_let_through(tmp_path: Path) -> None:
    ann = [*tried("1", "bob"), Line("try", "2", ["bob"]), START, *tried("3", "bob")]
    assert not found(tmp_path, ann=ann, bob=[got("1", 1), START, got("1", 1), got("3", 2)]).strip()


@pytest.mark.parametrize(
    ("bob", "what"),
    [
        ([got("1", 1)], "completeness"),
        ([got("2", 1), got("1", 2)], "fifo"),
        ([got("1", 1), got("2", 2), got("2", 2)], "duplication"),
        ([got("1", 1), got("2", 2), START, got("2", 3)], "duplication"),
        ([got("1", 1), got("2", 3)], "positions have holes"),
        ([got("1", 1), got("2", 2), got("9", 3)], "creation"),
        ([got("1", 1), START, got("2", 1)], "position 1 had 1, and then 2"),
        ([got("1", 1), got("2", 2), START, got("2", 2), START, got("1", 1)], "began again at position 1"),
        ([got("1", 1), got("2", 2), Line("died", "2", position=2), START], "died with 2 in its hands, which never came again"),
        ([got("1", 1), got("2", 2), Line("failed", "refused")], "bob: refused"),
    ],
)
def test_the_verdict_notices(bob: list[Line], what: str, tmp_path: Path) -> None:
    assert what in found(tmp_path, ann=[*tried("1", "bob"), *tried("2", "bob")], bob=bob)


def test_the_verdict_notices_a_reply_before_its_cause(tmp_path: Path) -> None:
    ann = [*tried("1", "bob", "eve")]
    assert "causal" in found(tmp_path, ann=ann, bob=[got("1", 1), *tried("2", "eve")], eve=[got("2", 1), got("1", 2)])


def test_of_two_programs_the_older_comes_first_and_only_what_was_accepted_of_it_counts(tmp_path: Path) -> None:
    older = [*tried("1", "bob"), Line("try", "2", ["bob"]), Line("try", "3", ["bob"]), Line("fenced", "", position=1)]
    newer = [START, *tried("4", "bob")]
    ann = [msgspec.structs.replace(line, life="newer") for line in newer] + older
    assert not found(tmp_path / "kept", ann=ann, bob=[got("1", 1), got("2", 2), got("4", 3)]).strip()
    assert "completeness" in found(tmp_path / "lost", ann=ann, bob=[got("1", 1), got("4", 2)])
    told = found(tmp_path / "came", ann=ann, bob=[got("1", 1), got("2", 2), got("3", 3), got("4", 4)])
    assert "3 was never to be accepted, and came" in told
    assert "fifo" in found(tmp_path / "order", ann=ann, bob=[got("1", 1), got("4", 2), got("2", 3)])


def test_the_verdict_notices_a_hole_in_what_a_killed_client_sent(tmp_path: Path) -> None:
    ann = [Line("try", "1", ["bob"]), Line("try", "2", ["bob"]), START]
    assert "tried before it was not" in found(tmp_path, ann=ann, bob=[got("2", 1)])
