"""The options of ``thence serve``, each with what it says of itself."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from thence.runtime.event_loop import MAX_AWAKE_S


class Durability(StrEnum):
    """What a message that was accepted survives."""

    DISK = "disk"
    MEMORY = "memory"


class BacklogMode(StrEnum):
    """Where messages wait for clients that are away."""

    MEMORY = "memory"
    SPILL = "spill"


class LogForm(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


TopologyFile = Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The TOML file of the fabric.")]
ServerName = Annotated[str, typer.Option("--server", metavar="NAME", help="Which server of it to be.")]
DataFolder = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where to keep what must survive; made if it is not there.")
]
HowDurable = Annotated[
    Durability,
    typer.Option("--durability", help="disk: on disk before it is acknowledged. memory: a server that stops has forgotten."),
]
ListenAt = Annotated[
    str | None, typer.Option("--listen", metavar="HOST:PORT", help="Listen here, not at the address in the topology.")
]
AgentClasses = Annotated[
    list[str] | None,
    typer.Option("--agents", metavar="MODULE[:CLASS]", help="Know these classes of agents; may be given several times."),
]
TraceFolder = Annotated[
    Path | None, typer.Option("--trace", metavar="DIR", help="Write every send and delivery here, for judge and audit.")
]
TlsCertificate = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="This server's certificate; its DNS name is NAME.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate.")]
TlsAuthority = Annotated[Path | None, typer.Option("--tls-ca", metavar="FILE", help="Who signs the certificates of all servers.")]
AccessFile = Annotated[
    Path | None,
    typer.Option("--access", metavar="FILE", help="Who is let in and what each may do, as TOML; without, all may do all."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen beyond this machine without TLS; take peers at their word.")]
MaxStoreBytes = Annotated[
    int | None, typer.Option("--max-store-bytes", min=1, metavar="N", help="The most that the store may hold.")
]
Backlog = Annotated[
    BacklogMode,
    typer.Option(
        "--backlog", help="Where messages and frames wait for whom is away. spill: what is too much for memory is kept in files."
    ),
]
SpillAfterBytes = Annotated[
    int, typer.Option("--spill-after-bytes", min=1, metavar="N", help="How much stays in memory for each of them then.")
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="The most memory to take, such as 2G. Without: half of what there is, or the least it needs.",
    ),
]
DrainSeconds = Annotated[float, typer.Option("--drain", min=0, metavar="SECONDS", help="How long to wait for acks when stopped.")]
StopWith = Annotated[
    int | None,
    typer.Option("--stop-with", min=1, metavar="PID", help="Stop when this process is gone, which must have started this one."),
]
AwakeMicroseconds = Annotated[
    int,
    typer.Option(
        "--stay-awake",
        min=0,
        max=round(1e6 * MAX_AWAKE_S),
        metavar="N",
        help="Look for the next message for up to N microseconds before sleeping: quicker answers, a busier core.",
    ),
]
MetricsAt = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Answer HTTP here: /metrics for Prometheus, /healthz, /readyz. On this machine only, unless --insecure.",
    ),
]
Spans = Annotated[
    bool, typer.Option("--spans", help="Follow messages that carry a context with spans of OpenTelemetry (thence\\[otel]).")
]
LogLines = Annotated[LogForm, typer.Option("--log-format", help="Lines for people, or JSON.")]
