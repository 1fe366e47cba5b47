"""``thence simulate``: a workload on an ordering, over a network with faults, as a trace."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from thence.cli import console
from thence.cli.options import OrderingOptions, check_ordering_options, ordering_options
from thence.errors import ConfigError
from thence.runtime.files import read_topology
from thence.sim.options import MAX_LOSS, SimulationOptions
from thence.sim.simulation import Result, Simulation
from thence.trace.files import TraceWriter
from thence.trace.live import LiveTraceWriter
from thence.trace.recorder import nowhere

DEFAULT = SimulationOptions()
TRAFFIC, NETWORK, FAULTS = "Traffic", "Network", "Faults"
Law = "as constant:2ms, uniform:1ms..5ms, exponential:10ms, pareto:5ms,1.5 or lognormal:5ms,0.8"

Rollbacks = Annotated[
    int, typer.Option(help="How many times a process comes back on an old copy of its disk.", rich_help_panel=FAULTS)
]
Clones = Annotated[int, typer.Option(help="How many times a copy of a process begins to run beside it.", rich_help_panel=FAULTS)]
LostDisks = Annotated[int, typer.Option(help="How many times a process comes back with an empty disk.", rich_help_panel=FAULTS)]
Snapshots = Annotated[int, typer.Option(help="How many times one goes on from old memory, and its disk.", rich_help_panel=FAULTS)]
Durable = Annotated[
    bool | None, typer.Option(help="Whether records go to disk; default: if there are crashes.", rich_help_panel=FAULTS)
]
Reliable = Annotated[
    bool | None, typer.Option(help="Whether members ack and repeat; default: if faulty.", rich_help_panel=FAULTS)
]


def command(
    ordering: Annotated[str, typer.Option(help="Which ordering; see: thence orderings.")] = DEFAULT.ordering,
    option: OrderingOptions = None,
    topology: Annotated[Path | None, typer.Option(help="Run on the fabric of this TOML file instead of one domain.")] = None,
    processes: Annotated[int, typer.Option(help="How many processes: p1, p2, …", rich_help_panel=TRAFFIC)] = DEFAULT.processes,
    messages: Annotated[int, typer.Option(help="How many messages in all.", rich_help_panel=TRAFFIC)] = DEFAULT.messages,
    pattern: Annotated[
        str, typer.Option(help="broadcast, unicast, multicast, or mixed.", rich_help_panel=TRAFFIC)
    ] = DEFAULT.pattern,
    recipients: Annotated[
        int, typer.Option(help="Others that a multicast goes to.", rich_help_panel=TRAFFIC)
    ] = DEFAULT.recipients,
    body: Annotated[int, typer.Option(help="Bytes of payload.", rich_help_panel=TRAFFIC)] = DEFAULT.body_bytes,
    gap: Annotated[str, typer.Option(help=f"Time between two sends, {Law}.", rich_help_panel=TRAFFIC)] = DEFAULT.gap,
    replies: Annotated[
        float, typer.Option(help="Share of messages that somebody answers at once.", rich_help_panel=TRAFFIC)
    ] = DEFAULT.replies,
    delay: Annotated[str, typer.Option(help=f"Delay of each link, {Law}.", rich_help_panel=NETWORK)] = DEFAULT.delay,
    bandwidth: Annotated[int | None, typer.Option(help="Bytes per second of each link.", rich_help_panel=NETWORK)] = None,
    link_delay: Annotated[
        str | None, typer.Option(help="Delay between domains, if another one.", rich_help_panel=NETWORK)
    ] = None,
    link_bandwidth: Annotated[
        int | None, typer.Option(help="Bytes per second between domains, if another one.", rich_help_panel=NETWORK)
    ] = None,
    loss: Annotated[float, typer.Option(help=f"Share of packets lost, 0 to {MAX_LOSS}.", rich_help_panel=FAULTS)] = DEFAULT.loss,
    duplication: Annotated[float, typer.Option(help="Share of packets doubled.", rich_help_panel=FAULTS)] = DEFAULT.duplication,
    reordering: Annotated[
        float, typer.Option(help="Share of packets held up on their way.", rich_help_panel=FAULTS)
    ] = DEFAULT.reordering,
    reorder_delay: Annotated[str, typer.Option(help="For how long, a law.", rich_help_panel=FAULTS)] = DEFAULT.reorder_delay,
    partitions: Annotated[
        int, typer.Option(help="How many times the network is cut in two for a while.", rich_help_panel=FAULTS)
    ] = DEFAULT.partitions,
    crashes: Annotated[
        int, typer.Option(help="How many times a process loses its memory and restarts from disk.", rich_help_panel=FAULTS)
    ] = DEFAULT.crashes,
    suspicions: Annotated[int, typer.Option(help="How many times some suspect others wrongly.", rich_help_panel=FAULTS)] = 0,
    deaths: Annotated[int, typer.Option(help="How many die for good, of those who can be missed.", rich_help_panel=FAULTS)] = 0,
    rollbacks: Rollbacks = 0,
    clones: Clones = 0,
    lost_disks: LostDisks = 0,
    snapshots: Snapshots = 0,
    sync: Annotated[str, typer.Option(help="How long the disk takes to sync, a law.", rich_help_panel=FAULTS)] = DEFAULT.sync,
    durable: Durable = None,
    reliable: Reliable = None,
    seed: Annotated[int, typer.Option(help="Same seed and options, same trace, byte for byte.")] = DEFAULT.seed,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace here: JSON lines if it ends in .jsonl, else a Parquet folder.")
    ] = None,
    arrivals: Annotated[
        bool, typer.Option("--arrivals", help="Also write when each copy came in, so that waiting can be measured.")
    ] = DEFAULT.arrivals,
    live: Annotated[
        bool, typer.Option("--live", help="Let each part of the trace appear when it is finished, for who follows it.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Run a workload on an ordering, or on a whole fabric, and write the trace of it.

    Everything happens in simulated time and comes from the seed. Where
    frames can get lost, members number, acknowledge and repeat them, as
    servers do. The summary says what was delivered, how long it took, what
    waited and what the order cost. Processes that forget (--rollbacks,
    --clones, --lost-disks, --snapshots) meet in epochs, as servers do, and
    the summary says what vanished without a word.
    Exits with 0, with 1 if something did, or with 2 if an option cannot be
    used.

    Example: thence simulate --ordering matrix --loss 0.1 --trace run.jsonl
    """
    options = _options(locals())
    options.check()
    if live and trace is None:
        raise ConfigError("--live without --trace: there is no trace to follow; name one")
    result = _simulate(options, topology, trace, live=live)
    _tell(options, result, trace, json=json)


def _tell(options: SimulationOptions, result: Result, trace: Path | None, *, json: bool) -> None:
    broken = () if result.copies is None else result.copies.broken
    if json:
        console.say_json(msgspec.json.encode({**_summary(result), "replay": options.replay()}).decode())
    else:
        _print(options, result)
        for what in broken:
            console.say(what)
        if trace:
            console.say(f"Trace: {trace}   Judge it: thence judge {shlex.quote(str(trace))}")
    if broken:
        raise typer.Exit(1)


def _options(given: dict[str, Any]) -> SimulationOptions:
    values = {name: value for name, value in given.items() if name in SimulationOptions.__struct_fields__}
    return SimulationOptions(
        **{**values, "topology": None if given["topology"] is None else str(given["topology"])},
        ordering_options=ordering_options(given["option"]),
        body_bytes=given["body"],
        bandwidth_bytes_per_s=given["bandwidth"],
        link_bandwidth_bytes_per_s=given["link_bandwidth"],
    )


def _simulate(options: SimulationOptions, topology: Path | None, trace: Path | None, *, live: bool) -> Result:
    fabric = None if topology is None else read_topology(topology)
    check_ordering_options(options.ordering, options.ordering_options)
    with console.progress("simulating (messages)", options.messages) as advance:
        if trace is None:
            return Simulation(options, nowhere, where=fabric).run(advance)
        with LiveTraceWriter(trace) if live else TraceWriter(trace) as writer:
            return Simulation(options, writer.write, where=fabric).run(advance)


def _summary(result: Result) -> dict[str, Any]:
    statistics = result.statistics
    messages = max(1, statistics.messages)
    copies = result.copies
    told = {} if copies is None else {"fenced": copies.fenced, "lost": len(copies.lost), "false_alarms": len(copies.false_alarms)}
    return {
        "messages": statistics.messages,
        "deliveries": statistics.deliveries,
        "delay_ms_p50": statistics.delay_ns(0.50) / 1e6,
        "delay_ms_p95": statistics.delay_ns(0.95) / 1e6,
        "delay_ms_p99": statistics.delay_ns(0.99) / 1e6,
        "delay_ms_max": statistics.delay_ns(1.0) / 1e6,
        "frames_per_message": statistics.frames / messages,
        "control_bytes_per_message": statistics.control_bytes / messages,
        "control_bytes_per_frame": statistics.control_bytes / max(1, statistics.frames),
        "deliveries_that_waited": statistics.waited,
        "longest_wait_ms": statistics.longest_wait_ns / 1e6,
        "still_waiting": result.waiting,
        "frames_refused": statistics.refused,
        "crashes": statistics.crashes,
        "suspicions": statistics.suspicions,
        **told,
        **{f"network_{name}": count for name, count in result.network.items()},
        "events": result.events,
        "simulated_s": result.duration_ns / 1e9,
    }


def _print(options: SimulationOptions, result: Result) -> None:
    summary = _summary(result)
    rows = [(name.replace("_", " "), value) for name, value in summary.items()]
    where = options.topology or f"{options.ordering}, {console.count(options.processes, 'process')}"
    title = f"{where}, {options.pattern}, seed {options.seed}"
    console.out.print(console.table(("measure", "value"), rows, title=title))
    console.say(f"Replay: {options.replay()}")
