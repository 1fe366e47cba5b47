"""Servers to measure: ours and those of NATS, Redis and RabbitMQ, on loopback, on free ports, in a folder that goes with them.

Rules: each is stopped when its block ends, whatever happens in it. What is not installed is installed by apt-get where that may
be done (as root), and otherwise named with the command that does.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from thence.cli.servers.up import free_addresses
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.errors import UsageError

PROGRAMS = ("nats-server", "redis-server", "rabbitmq-server")
"""Each is in the Debian package of its name."""
MODULES = {"aio_pika": "aio-pika", "nats": "nats-py", "redis": "redis"}
RABBIT_SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The program itself: what Debian puts in front of it changes to a user that cannot write into our folder."""
UP_WITHIN_S = 60.0
STOP_WITHIN_S = 15.0


def install_missing() -> None:
    """See to it that every peer is there, or say how."""
    modules = [package for module, package in MODULES.items() if find_spec(module) is None]
    if modules:
        print(f"installing {', '.join(modules)}", file=sys.stderr)
        constraints = str(Path(__file__).parents[2] / "constraints.txt")
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "-c", constraints, *modules], check=True)
    missing = [program for program in PROGRAMS if _found(program) is None]
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UsageError(f"missing: {', '.join(missing)}; on Debian or Ubuntu type: sudo {' '.join(command)}")
    print(f"installing {', '.join(missing)}", file=sys.stderr)
    subprocess.run(["apt-get", "-qq", "update"], check=False, stdout=subprocess.DEVNULL)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def _found(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def topology_text(names: tuple[str, ...], ordering: str = "vector") -> str:
    """Return a fabric of one domain, each server with an address of its own."""
    return write(with_free_addresses(Topology("peers", [Domain("all", names, ordering)])))


def with_free_addresses(topology: Topology) -> Topology:
    """Return the topology with an address on this machine for each server."""
    addresses = dict(zip(topology.processes, free_addresses(len(topology.processes)), strict=True))
    return Topology(topology.name, topology.domains.values(), topology.links.values(), addresses=addresses)


@contextmanager
def thence_servers(
    folder: Path, names: tuple[str, ...], *, options: tuple[str, ...] = ()
) -> Iterator[tuple[list[str], list[int]]]:
    """Run our servers, of one domain, with these options or with a disk; give their addresses and processes."""
    folder.mkdir()
    topology = folder / "topology.toml"
    text = topology_text(names)
    topology.write_text(text, encoding="utf-8")
    addresses = [line.split('"')[1] for line in text.splitlines() if line.startswith("address")]
    running = []
    try:
        for name, address in zip(names, addresses, strict=True):
            arguments = [sys.executable, "-m", "thence.cli.main", "serve", str(topology), "--server", name]
            arguments += options or ("--data", str(folder / name))
            running.append(_start(arguments, folder / f"{name}.log", int(address.rpartition(":")[2])))
        yield [f"thence://{address}" for address in addresses], [process.pid for process in running]
    finally:
        _stop(running)


@contextmanager
def nats_server(folder: Path) -> Iterator[tuple[str, int]]:
    """Run NATS, with JetStream in the folder and everything else as it comes."""
    folder.mkdir()
    port = free_port()
    config = folder / "nats.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "streams"}" }}\nmax_pending: 1GB\n')
    running = [_start([_found("nats-server") or "", "-c", str(config)], folder / "nats.log", port)]
    try:
        yield f"nats://127.0.0.1:{port}", running[0].pid
    finally:
        _stop(running)


@contextmanager
def redis_server(folder: Path, *, disk: bool = True) -> Iterator[tuple[int, int]]:
    """Run Redis so that it syncs before it answers, or keeps everything in memory; give its port and process."""
    folder.mkdir()
    port = free_port()
    arguments = [_found("redis-server") or "", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    kept = ["--appendonly", "yes", "--appendfsync", "always"] if disk else ["--appendonly", "no"]
    running = [_start([*arguments, *kept], folder / "redis.log", port)]
    try:
        yield port, running[0].pid
    finally:
        _stop(running)


@contextmanager
def rabbitmq_server(folder: Path) -> Iterator[tuple[str, int]]:
    """Run RabbitMQ with nothing but a port and places of our own; give its address and process."""
    folder.mkdir()
    port, names, between = free_port(), free_port(), free_port()
    config = folder / "rabbitmq.conf"
    config.write_text(f"listeners.tcp.local = 127.0.0.1:{port}\n", encoding="utf-8")
    (folder / "plugins").write_text("[].\n", encoding="utf-8")
    environment = {
        **os.environ,
        "HOME": str(folder),
        "RUNNING_UNDER_SYSTEMD": "1",  # It then becomes the server, instead of waiting for it.
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_DIST_PORT": str(between),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    running = [_start([RABBIT_SCRIPT], folder / "rabbitmq.log", port, environment)]
    try:
        yield f"amqp://guest:guest@127.0.0.1:{port}/", running[0].pid
    finally:
        _stop(running)
        subprocess.run(["epmd", "-port", str(names), "-kill"], check=False, stdout=subprocess.DEVNULL, env=environment)


def cpu_s(processes: Sequence[int]) -> float:
    """Return how much the processor has worked for servers since they started."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Return a port of this machine that nobody uses."""
    return int(free_addresses(1)[0].rpartition(":")[2])


def _start(arguments: list[str], log: Path, port: int, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a server, and wait until it listens."""
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=output, env=environment)
    deadline = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except OSError:
            time.sleep(0.05)
    process.kill()
    process.wait()
    raise UsageError(f"{arguments[0]} does not listen on port {port}: {log.read_text(errors='replace')[-500:]}")


def _stop(running: list[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
