"""``thence serve``: run one server of a fabric."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from thence.agents import kinds as agents_kinds
from thence.agents.kinds import Kind
from thence.cli.servers import serve_options as given
from thence.core.topology.addresses import parse_address
from thence.core.topology.model import Topology
from thence.errors import ConfigError, StorageError
from thence.net.security.exposure import check_answering
from thence.net.security.tls import TlsFiles
from thence.node.budget import parse_memory
from thence.node.options import NodeOptions
from thence.node.spans import ServerSpans
from thence.runtime import event_loop, logs, memory
from thence.runtime.event_loop import stay_awake
from thence.runtime.files import read_topology
from thence.server.server import DRAIN_S, Server
from thence.storage.mailbox import SPILL_AFTER_BYTES

SWITCH_S: Final = 0.0005
"""After how long a thread that waits for the interpreter gets it: a commit needs it four times, while the loop is busy."""
PR_SET_PDEATHSIG: Final = 1
"""Of Linux's prctl: which signal to get when the thread that started us ends."""

log = logging.getLogger("thence.serve")


def command(
    topology: given.TopologyFile,
    server: given.ServerName,
    data: given.DataFolder = None,
    durability: given.HowDurable = given.Durability.DISK,
    listen: given.ListenAt = None,
    agents: given.AgentClasses = None,
    trace: given.TraceFolder = None,
    tls_certificate: given.TlsCertificate = None,
    tls_key: given.TlsKey = None,
    tls_authority: given.TlsAuthority = None,
    access: given.AccessFile = None,
    insecure: given.Insecure = False,
    max_store_bytes: given.MaxStoreBytes = None,
    backlog: given.Backlog = given.BacklogMode.MEMORY,
    spill_after_bytes: given.SpillAfterBytes = SPILL_AFTER_BYTES,
    memory_size: given.Memory = None,
    drain_s: given.DrainSeconds = DRAIN_S,
    stop_with: given.StopWith = None,
    awake_us: given.AwakeMicroseconds = 0,
    metrics: given.MetricsAt = None,
    spans: given.Spans = False,
    log_form: given.LogLines = given.LogForm.TEXT,
) -> None:
    """Run one server of a fabric until it is told to stop.

    With the first SIGTERM or SIGINT it takes nothing more, waits for what
    is on its way to be acknowledged, and stops. With the second one it stops
    at once; nothing that was acknowledged is lost by that. With SIGHUP it
    reads certificates and the access file again, as it does by itself when
    they change; connections stay.

    Exits with 0 after it was told to stop; with 2 if it cannot start, or its
    store fails so that it cannot go on.

    Example: thence serve city.toml --server s1 --data data/s1
    """
    fabric = read_topology(topology)
    if durability is given.Durability.DISK and data is None:
        raise ConfigError("give --data DIR, or --durability memory if nothing needs to survive")
    if backlog is given.BacklogMode.SPILL and durability is given.Durability.MEMORY:
        raise ConfigError(
            "--backlog spill keeps messages in files of the store: it needs --data DIR, and not --durability memory"
        )
    if metrics is not None:
        from thence.observe.http import parse_listen

        check_answering(parse_address(parse_listen(metrics))[0], insecure=insecure)
    options = NodeOptions(
        data=data if durability is given.Durability.DISK else None,
        tls=tls_files(tls_certificate, tls_key, tls_authority),
        access=access,
        insecure=insecure,
        trace=trace,
        max_store_bytes=max_store_bytes,
        spill_after_bytes=spill_after_bytes if backlog is given.BacklogMode.SPILL else None,
        memory=0 if memory_size is None else parse_memory(memory_size),
        agents=bool(agents),
    )
    if stop_with is not None:
        _stop_with(stop_with)
    kinds = agents_kinds.load(agents or ())
    logs.set_up(server, log_form.value)
    memory.keep_freed_memory()
    _open_many_files()
    openings = ServerOpenings(listen, metrics, ServerSpans(server) if spans else None)
    sys.setswitchinterval(SWITCH_S)
    event_loop.run(_serve(ServerStart(fabric, server, options, kinds), openings, drain_s, awake_us / 1e6))


def _stop_with(parent: int) -> None:
    """Let the system tell us to stop when the process that started us is gone, however it ended."""
    if sys.platform != "linux":
        raise ConfigError("--stop-with needs Linux: elsewhere the system does not tell")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise ConfigError(f"--stop-with {parent}: this process was started by {os.getppid()}, or the other one is gone already")


def _open_many_files() -> None:
    """Ask the system for as many open files as it lets us have: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def tls_files(certificate: Path | None, key: Path | None, authority: Path | None) -> TlsFiles | None:
    """Return the files for TLS; all of them, or none."""
    if certificate is None and key is None and authority is None:
        return None
    if certificate is None or key is None or authority is None:
        raise ConfigError("TLS needs all of --tls-cert, --tls-key and --tls-ca")
    return TlsFiles(certificate=certificate, key=key, authority=authority)


class ServerStart(NamedTuple):
    """What a server is made of."""

    topology: Topology
    name: str
    options: NodeOptions
    kinds: Mapping[str, Kind]


class ServerOpenings(NamedTuple):
    """Where it listens, for members and clients, and for those who look after it, and what else these see."""

    listen: str | None
    metrics: str | None
    spans: ServerSpans | None


async def _serve(start: ServerStart, openings: ServerOpenings, drain_s: float, awake_s: float) -> None:
    with stay_awake(awake_s):
        await _serve_behind(openings, Server(*start), drain_s)


async def _serve_behind(openings: ServerOpenings, server: Server, drain_s: float) -> None:
    server.node.hooks.spans = openings.spans
    await server.start(openings.listen)
    memory.look_for_garbage_less_often()
    if openings.metrics is None:
        await _until_told(server, drain_s)
        return
    # What metrics are made with takes a sixth of the time that everything else takes to import.
    from thence.observe.http import Answerer

    answerer = Answerer(server)
    address = await answerer.open(openings.metrics)
    log.info("metrics of %s are at http://%s/metrics", server.node.name, address)
    try:
        await _until_told(server, drain_s)
    finally:
        answerer.close()


async def _until_told(server: Server, drain_s: float) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    at_once = asyncio.Event()

    def on_signal() -> None:
        (at_once if told.is_set() else told).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    waiting = loop.create_task(told.wait())
    failing = asyncio.ensure_future(server.stopped)
    await asyncio.wait((waiting, failing), return_when=asyncio.FIRST_COMPLETED)
    if server.stopped.done():
        waiting.cancel()
        raise server.stopped.result() or StorageError("the server cannot go on")
    stopping = loop.create_task(server.stop(drain_s=drain_s))
    hurry = loop.create_task(at_once.wait())
    await asyncio.wait([stopping, hurry], return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if stopping.done():
        stopping.result()
