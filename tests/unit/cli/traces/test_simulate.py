"""``thence simulate``: every option does what it says, what cannot be is refused by name, and a run can be repeated."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import typer
from typer.main import get_command

from tests.unit.cli import refusal, run
from thence.cli.traces import simulate
from thence.core.ordering import ORDERINGS
from thence.sim.options import MAX_LOSS
from thence.trace import Event, read_trace

MESSAGES = 200
FABRIC = Path(__file__).parents[4] / "examples" / "two-sites.toml"
TWINS = Path(__file__).parents[4] / "examples" / "twin-relays.toml"
Summary = dict[str, Any]


@cache
def summary(arguments: str = "") -> Summary:
    """Return the summary of a run with these arguments."""
    ended = run("simulate", "--messages", str(MESSAGES), "--json", *shlex.split(arguments))
    assert (ended.code, ended.err) == (0, "")
    printed = json.loads(ended.out)
    assert isinstance(printed, dict)
    return printed


ABOUT_THE_TRACE = {"--trace", "--arrivals", "--live"}
"""Options that the summary does not show; they are tried below."""


class Effect(NamedTuple):
    """An option, and how the summary with it differs from the one without."""

    option: str
    arguments: str
    seen: Callable[[Summary, Summary], bool]
    without: str = ""


EFFECTS = (
    Effect("--ordering", "--ordering fifo", lambda got, base: got["control_bytes_per_frame"] < base["control_bytes_per_frame"]),
    Effect(
        "--option",
        "--option 'stamps=\"full\"'",
        lambda got, base: got["control_bytes_per_frame"] > base["control_bytes_per_frame"],
    ),
    Effect(
        "--option", "--option stamps=full", lambda got, base: got["control_bytes_per_frame"] > base["control_bytes_per_frame"]
    ),
    Effect("--processes", "--processes 8", lambda got, _: got["deliveries"] == 8 * MESSAGES),
    Effect("--messages", "--messages 50", lambda got, _: got["messages"] == 50),
    Effect("--pattern", "--pattern broadcast", lambda got, base: got == {**base, "replay": got["replay"]}),
    Effect("--pattern", "--pattern unicast", lambda got, _: got["deliveries"] == MESSAGES),
    Effect("--pattern", "--pattern multicast", lambda got, _: got["deliveries"] == 3 * MESSAGES),
    Effect("--pattern", "--pattern mixed", lambda got, _: MESSAGES < got["deliveries"] < 5 * MESSAGES),
    Effect("--recipients", "--pattern multicast --recipients 2", lambda got, _: got["deliveries"] == 2 * MESSAGES),
    Effect("--recipients", "--pattern multicast --recipients 9", lambda got, _: got["deliveries"] == 4 * MESSAGES),
    Effect("--body", "--body 1100", lambda got, base: got["network_bytes"] == base["network_bytes"] + 1000 * 4 * MESSAGES),
    Effect("--gap", "--gap constant:50ms", lambda got, base: got["simulated_s"] > 5 * base["simulated_s"]),
    Effect("--replies", "--replies 0", lambda got, base: got["simulated_s"] > base["simulated_s"]),
    Effect("--delay", "--delay constant:80ms", lambda got, _: got["delay_ms_p50"] == got["delay_ms_max"] == 80),
    Effect("--bandwidth", "--bandwidth 20000", lambda got, base: got["delay_ms_p50"] > base["delay_ms_p50"]),
    Effect("--topology", f"--topology {FABRIC}", lambda got, base: got["frames_per_message"] != base["frames_per_message"]),
    Effect(
        "--link-delay",
        f"--topology {FABRIC} --link-delay constant:500ms",
        lambda got, base: got["delay_ms_p95"] > base["delay_ms_p95"] + 400,
        without=f"--topology {FABRIC}",
    ),
    Effect(
        "--link-bandwidth",
        f"--topology {FABRIC} --link-bandwidth 2000",
        lambda got, base: got["delay_ms_p95"] > base["delay_ms_p95"] + 400,
        without=f"--topology {FABRIC}",
    ),
    Effect("--loss", "--loss 0.2", lambda got, base: got["network_lost"] > base["network_lost"] == 0),
    Effect("--duplication", "--duplication 0.2", lambda got, base: got["network_duplicated"] > base["network_duplicated"] == 0),
    Effect("--reordering", "--reordering 0.2", lambda got, base: got["network_reordered"] > base["network_reordered"] == 0),
    Effect(
        "--reorder-delay",
        "--reordering 0.05 --reorder-delay constant:2s",
        lambda got, base: got["delay_ms_p95"] > base["delay_ms_p95"],
        without="--reordering 0.05",
    ),
    Effect("--partitions", "--partitions 3", lambda got, base: got["network_cut"] > base["network_cut"] == 0),
    Effect("--crashes", "--crashes 3", lambda got, base: 3 >= got["crashes"] > base["crashes"] == 0),
    Effect(
        "--suspicions",
        f"--topology {TWINS} --suspicions 5",
        lambda got, base: got["suspicions"] == 5 > base["suspicions"] and got["frames_per_message"] > base["frames_per_message"],
        without=f"--topology {TWINS}",
    ),
    Effect(
        "--deaths",
        f"--topology {TWINS} --deaths 1",
        lambda got, base: got["crashes"] == 1 > base["crashes"],
        without=f"--topology {TWINS}",
    ),
    Effect("--rollbacks", "--rollbacks 2 --seed 1", lambda got, base: got["fenced"] > 0 == got["lost"] and "fenced" not in base),
    Effect("--clones", "--clones 2", lambda got, _: got["fenced"] > 0 == got["lost"]),
    Effect("--lost-disks", "--lost-disks 1", lambda got, _: got["fenced"] == 1 > got["lost"]),
    Effect("--snapshots", "--snapshots 3", lambda got, _: got["fenced"] > 0 == got["lost"]),
    Effect(
        "--sync",
        "--durable --sync constant:30ms",
        lambda got, base: got["delay_ms_p50"] > base["delay_ms_p50"] + 29,
        without="--durable --sync constant:0ns",
    ),
    Effect("--durable", "--durable", lambda got, base: got["events"] > base["events"]),
    Effect("--no-durable", "--no-durable --sync constant:30ms", lambda got, base: got["events"] == base["events"]),
    Effect("--reliable", "--reliable", lambda got, base: got["network_sent"] > 1.5 * base["network_sent"]),
    Effect("--no-reliable", "--no-reliable", lambda got, base: got == {**base, "replay": got["replay"]}),
    Effect("--seed", "--seed 4", lambda got, base: got["delay_ms_p50"] != base["delay_ms_p50"]),
)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: str(effect.arguments))
def test_an_option_has_its_effect(effect: Effect) -> None:
    got, base = summary(effect.arguments), summary(effect.without)
    assert effect.seen(got, base), f"{got}\nwithout: {base}"


def test_every_option_is_tried() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(simulate.command)
    options = {name for param in get_command(app).params for name in (*param.opts, *param.secondary_opts)}
    assert {effect.option for effect in EFFECTS} == options - ABOUT_THE_TRACE - {"--json"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--ordering vektor", "there is no ordering 'vektor'; did you mean 'vector'?"),
        ("--pattern sideways", "--pattern sideways: must be one of broadcast, unicast, multicast, mixed"),
        ("--delay quick", "--delay: 'quick' names no delay law"),
        ("--gap exponential:10", "--gap: delay law 'exponential:10': '10' has no unit: did you mean 10ms?"),
        ("--sync constant:1parsec", "--sync: delay law 'constant:1parsec'"),
        ("--reorder-delay uniform:5ms..1ms", "--reorder-delay: delay law 'uniform:5ms..1ms'"),
        ("--loss 2", f"--loss 2.0: must be from 0 to {MAX_LOSS}"),
        ("--loss nan", "--loss nan: must be from 0"),
        ("--loss 1", "--loss 1.0: must be from 0"),
        ("--duplication -0.1", "--duplication -0.1: must be from 0 to 1"),
        ("--reordering 1.5", "--reordering 1.5: must be from 0 to 1"),
        ("--replies 2", "--replies 2.0: must be from 0 to 1"),
        ("--processes 1", "--processes 1: must be from 2"),
        ("--messages -1", "--messages -1: must be from 0"),
        ("--recipients 0", "--recipients 0: must be from 1"),
        ("--body -1", "--body -1: must be from 0"),
        ("--bandwidth 0", "--bandwidth 0: must be from 1"),
        ("--partitions -1", "--partitions -1: must be from 0"),
        ("--crashes 1 --no-durable", "--no-durable with --crashes"),
        ("--crashes -1", "--crashes -1: must be from 0"),
        ("--loss 0.1 --no-reliable", "--no-reliable with faults"),
        ("--option stamps", "--option stamps: expected NAME=VALUE"),
        ("--option =full", "--option =full: expected NAME=VALUE"),
        ("--option stamps=half", "--option stamps=half: must be one of changed, full"),
        ("--option size=3", "--option size: vector has no such option (its options: stamps)"),
        ("--ordering fifo --option stamps=full", "--option stamps: fifo has no such option (it has no options)"),
        ("--ordering sequenced --option coordinator=5", "--option coordinator=5: Expected `str"),
        ("--ordering sequenced --option coordinator=p9", "domain 'd': sequenced: the coordinator 'p9' is not among the members"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: str, says: str, tmp_path: Path) -> None:
    assert refusal("simulate", *shlex.split(arguments), "--trace", tmp_path / "run.jsonl").startswith(says)
    assert list(tmp_path.iterdir()) == [], "something is left behind"


@pytest.mark.parametrize("arguments", ["--seed x", "--no-such-option", "--loss"])
def test_wrong_usage_exits_with_two(arguments: str) -> None:
    ended = run("simulate", *arguments.split())
    assert ended.code == 2
    assert ended.out == ""
    assert arguments.split(maxsplit=1)[0] in ended.err


def test_a_trace_that_cannot_be_written_exits_with_two(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("not a trace", encoding="utf-8")
    assert refusal("simulate", "--messages", "1", "--trace", tmp_path).startswith(f"{tmp_path}: a folder that is no trace")
    assert "notes.md" in refusal("simulate", "--messages", "1", "--trace", tmp_path / "notes.md" / "run.jsonl")


# --- traces ------------------------------------------------------------------------------------------------------------

FAULTS = "--messages 60 --processes 4 --pattern multicast --recipients 2 --loss 0.1 --reordering 0.2 --crashes 2 --seed 5"


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_a_trace_is_judged_the_same_in_both_formats(ordering: str, tmp_path: Path) -> None:
    for name in ("run.jsonl", "run"):
        ended = run("simulate", "--ordering", ordering, *FAULTS.split(), "--trace", tmp_path / name)
        assert ended.code == 0
        assert ended.out.endswith(f"Trace: {tmp_path / name}   Judge it: thence judge {tmp_path / name}\n")
    assert json.loads((tmp_path / "run.jsonl").read_text(encoding="utf-8").splitlines()[0])["kind"] == "send"
    assert [path.suffix for path in (tmp_path / "run").iterdir()] == [".parquet"]
    lines, folder = (run("judge", tmp_path / name, "--json") for name in ("run.jsonl", "run"))
    assert lines == folder
    verdict = json.loads(lines.out)
    kept = "causal" in ORDERINGS[ordering].traits.guarantees
    assert (lines.code, verdict["verdict"]) == ((0, "kept") if kept else (1, "violated"))
    broken = {name for name, count in verdict["properties"].items() if count}
    assert broken <= {"fifo", "causal"} - ORDERINGS[ordering].traits.guarantees


@pytest.mark.parametrize("ordering", ["matrix", "flood"])
def test_arrivals_come_before_their_deliveries_and_change_nothing_else(ordering: str, tmp_path: Path) -> None:
    arguments = ("simulate", "--ordering", ordering, "--messages", "60", "--loss", "0.1", "--crashes", "2", "--trace")
    assert run(*arguments, tmp_path / "plain.jsonl").code == 0
    assert run(*arguments, tmp_path / "more.jsonl", "--arrivals").code == 0
    plain, more = (read_trace(tmp_path / name) for name in ("plain.jsonl", "more.jsonl"))
    assert [event_without_index(event) for event in more if event.kind != "arrive"] == list(map(event_without_index, plain))
    arrived = {(event.process, event.message) for event in more if event.kind == "arrive"}
    delivered = {(event.process, event.message) for event in more if event.kind == "deliver"}
    sent = {(event.process, event.message) for event in more if event.kind == "send"}
    assert delivered - sent <= arrived
    first = {(event.process, event.message): event.index for event in reversed(more) if event.kind == "arrive"}
    last = {(event.process, event.message): event.index for event in more if event.kind == "deliver"}
    assert all(first[key] < last[key] for key in delivered - sent)
    assert run("judge", tmp_path / "more.jsonl").code == 0


def test_a_live_trace_holds_the_same(tmp_path: Path) -> None:
    assert run("simulate", "--messages", "50", "--trace", tmp_path / "whole").code == 0
    assert run("simulate", "--messages", "50", "--trace", tmp_path / "live", "--live").code == 0
    assert read_trace(tmp_path / "live") == read_trace(tmp_path / "whole")
    assert "is in the way" in refusal("simulate", "--messages", "1", "--trace", tmp_path / "live", "--live")
    assert refusal("simulate", "--live").startswith("--live without --trace")
    assert "a live trace is a folder of parts" in refusal("simulate", "--live", "--trace", tmp_path / "x.jsonl")


def event_without_index(event: Event) -> Event:
    return msgspec.structs.replace(event, index=0)


# --- the summary -------------------------------------------------------------------------------------------------------


def test_the_summary_for_people_says_what_the_one_for_machines_says() -> None:
    printed = run("simulate", "--messages", str(MESSAGES)).out
    said = dict(re.findall(r"^ (\S.*?) +([\d,.]+) *$", printed, re.MULTILINE))
    given = {name.replace("_", " "): value for name, value in summary().items() if name != "replay"}
    assert {name: float(said[name].replace(",", "")) for name in given} == pytest.approx(given, abs=0.0005)


def test_nothing_waits_and_nothing_is_missing_at_the_end() -> None:
    found = summary("--ordering matrix --loss 0.2 --crashes 2")
    assert found["still_waiting"] == found["frames_refused"] == 0
    sent, ended = ("network_sent", "network_duplicated"), ("network_cut", "network_lost", "network_dropped", "network_delivered")
    assert sum(found[name] for name in sent) == sum(found[name] for name in ended)
    assert found["deliveries"] == 5 * MESSAGES
    assert found["deliveries_that_waited"] > 0
    assert 0 < found["longest_wait_ms"] <= found["delay_ms_max"]
    assert found["delay_ms_p50"] <= found["delay_ms_p95"] <= found["delay_ms_p99"] <= found["delay_ms_max"]


# --- replay ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--ordering matrix --option stamps=full --pattern unicast --body 0",
        '--ordering grouped --processes 4 --option \'groups=[["p1", "p2"], ["p3", "p4"]]\' --no-durable',
        "--ordering flood --option links=ring --loss 0.1 --duplication 0.1 --reordering 0.1 --reorder-delay pareto:5ms,1.5",
        "--crashes 2 --partitions 1 --bandwidth 100000 --sync 'uniform:1us .. 5us,min=2us' --replies 0.5 --seed -3",
        "--arrivals --durable --gap lognormal:5ms,0.8 --delay uniform:1ms..5ms --pattern multicast --recipients 1",
    ],
)
def test_the_replay_line_repeats_the_run_exactly(arguments: str, tmp_path: Path) -> None:
    given = ("simulate", "--messages", "40", *shlex.split(arguments))
    first = run(*given, "--trace", tmp_path / "first.jsonl")
    assert first.code == 0, first.err
    (line,) = [line for line in first.out.splitlines() if line.startswith("Replay: ")]
    name, *again = shlex.split(line.removeprefix("Replay: "))
    assert name == "thence"
    second = run(*again, "--trace", tmp_path / "second.jsonl")
    assert second.out.replace("second.jsonl", "first.jsonl") == first.out
    assert (tmp_path / "second.jsonl").read_bytes() == (tmp_path / "first.jsonl").read_bytes()
    assert json.loads(run(*given, "--json").out)["replay"] == line.removeprefix("Replay: ")
