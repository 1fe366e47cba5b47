"""``thence up``: run all servers of a fabric on this machine."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Annotated

import typer

from thence.cli import console
from thence.cli.servers.supervisor import Supervisor
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.errors import ConfigError
from thence.node.budget import machine_memory
from thence.node.offline.inspection import check_stores
from thence.node.options import NodeOptions, memory_beside
from thence.runtime.files import read_topology
from thence.storage import files

STOP_WITHIN_S = 20.0

RESERVED_PORTS = 200
"""How many ports that were given to servers are kept from others, the last ones: each costs an open file."""

reserved_sockets: deque[socket.socket] = deque()


def command(
    topology: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The TOML file of the fabric.")],
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Where the servers keep what must survive, a folder each.")
    ] = Path("data"),
    memory: Annotated[bool, typer.Option("--memory", help="Keep nothing on disk but the topology with addresses.")] = False,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agents", metavar="MODULE[:CLASS]", help="Let all servers know these classes of agents; several times."),
    ] = None,
    trace: Annotated[Path | None, typer.Option("--trace", metavar="DIR", help="Let all servers write their trace here.")] = None,
    access: Annotated[
        Path | None, typer.Option("--access", metavar="FILE", help="Who is let in and what each may do, as TOML.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine without TLS; take peers at their word.")
    ] = False,
) -> None:
    """Run all servers of a fabric on this machine until Ctrl-C or SIGTERM.

    Servers without an address in the topology get a free port on 127.0.0.1.
    The topology as it runs is written to DIR/topology.toml, and a second
    start with the same DIR uses the same ports. All logs come out as one,
    each line behind the name of its server. If this command is killed, they
    stop too.

    A server that ends by itself is started again after a while, and the
    others go on. One that ends 4 times in a row within 10 s of its start
    stays down, and so does one that was told to stop. With --memory each
    stays down: it has forgotten what its peers rely on.

    Exits with 0 after it was told to stop, or when no server is left; with 1
    if a server ended by itself and was started again; with 2 if one that
    ended by itself stayed down.

    Example: thence up city.toml --data data
    """
    given = read_topology(topology)
    if not memory:
        check_stores(given, data)
    fabric = with_addresses(given, data / "topology.toml")
    more = [*(("--access", str(access)) if access is not None else ()), *(("--insecure",) if insecure else ())]
    # Also if we are killed. Servers would take it for our end if the thread that started them ended: here that is the main one.
    more += ["--stop-with", str(os.getpid())] if sys.platform == "linux" else []
    fleet = Fleet(fabric, data, memory=memory, trace=trace, agents=agents or (), options=more)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where whoever started us ignores them, as shells do for what runs in the background.
        signal.signal(number, signal.default_int_handler)
    if (needed := sum(fleet.memory_of(name, fabric) for name in fabric.processes)) > (there := machine_memory()):
        console.err.print(f"warning: the servers may take {needed >> 20:,} MiB together, and there are {there >> 20:,} MiB here")
    fleet.start()
    supervisor = Supervisor(fleet, fabric.processes, forgetful=memory)
    try:
        for name, address in fabric.addresses.items():
            console.say_plainly(f"{name}  thence://{address}")
        console.err.print("Ctrl-C stops all of them")
        supervisor.run()
    except KeyboardInterrupt:
        pass
    finally:
        fleet.stop()
    raise typer.Exit(supervisor.exit_code)


def with_addresses(topology: Topology, kept: Path) -> Topology:
    """Return the topology with an address for each server, the same as the last time where there was one; keep it there."""
    for name in (kept.name, kept.name + files.UNFINISHED):
        if name in topology.homes:
            raise ConfigError(
                f"{kept.parent}: a server cannot be called {name!r} here: this is a file beside the servers' folders"
            )
    addresses = dict(read_topology(kept).addresses) if kept.exists() else {}
    addresses = {name: address for name, address in addresses.items() if name in topology.homes} | topology.addresses
    lacking = [name for name in topology.processes if name not in addresses]
    addresses |= dict(zip(lacking, free_addresses(len(lacking)), strict=True))
    ordered = {name: addresses[name] for name in topology.processes}
    complete = topology.at(ordered)
    files.make_folder(kept.parent)
    files.name_finished(files.write_unfinished(kept, write(complete).encode(), files.PUBLIC_MODE), kept)
    return complete


def free_addresses(count: int) -> list[str]:
    """Return addresses on this machine that nobody uses now, nor is given before long.

    Their sockets stay bound, without listening: as both allow it, a server can be bound to the same port; but the system gives
    it to nobody who asks for any.
    """
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
    reserved_sockets.extend(sockets)
    _release_ports(RESERVED_PORTS)
    return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


@atexit.register
def _release_ports(kept: int = 0) -> None:
    """Keep only the last so many ports from others."""
    while len(reserved_sockets) > kept:
        reserved_sockets.popleft().close()


class Fleet:
    """The servers of a fabric as processes on this machine."""

    def __init__(
        self,
        topology: Topology,
        data: Path,
        *,
        memory: bool = False,
        trace: Path | None = None,
        agents: Sequence[str] = (),
        options: Sequence[str] = (),
        log: Callable[[str], None] | None = None,
    ) -> None:
        """``data`` holds ``topology.toml``. ``options`` are further ones of ``thence serve``.

        ``log`` gets every line of every log; by default they are printed.
        """
        self.topology = topology
        self.data = data
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._memory = memory
        self._trace = trace
        self._agents = agents
        self._options = options
        self._width = max(len(name) for name in topology.processes)
        self._log = log or _print_line
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all servers."""
        for name in self.topology.processes:
            self.start_one(name)

    def start_one(self, name: str, topology: Path | None = None) -> None:
        """Start one server, with another file if it comes in by a later version of the fabric."""
        file = topology or self.data / "topology.toml"
        arguments = [sys.executable, "-m", "thence.cli.main", "serve", str(file), "--server", name]
        arguments += ["--durability", "memory"] if self._memory else ["--data", str(self.data / name)]
        if self._trace is not None:
            arguments += ["--trace", str(self._trace)]
        for place in self._agents:
            arguments += ["--agents", place]
        arguments += self._options
        memory = self.memory_of(name, read_topology(file))
        if "--memory" not in self._options and memory <= machine_memory():
            arguments += ["--memory", str(memory)]
        process = self.processes[name] = self._open(arguments)
        if process.stderr is not None:
            thread = threading.Thread(target=self._copy_log, args=(name, process.stderr), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _open(self, arguments: list[str]) -> subprocess.Popen[str]:
        """Start a process; what it says of itself is read from its standard error."""
        return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, start_new_session=True)  # noqa: S603  Ourselves.

    def memory_of(self, name: str, topology: Topology) -> int:
        """Return how much memory a server may take beside the others: what is for one server is divided among them."""
        options = NodeOptions(data=None if self._memory else self.data / name, agents=bool(self._agents))
        return memory_beside(len(topology.processes), options, topology, name)

    def _copy_log(self, name: str, log: IO[str]) -> None:
        with log:
            for line in log:
                self._log(f"{name:{self._width}} | {console.plain(line.rstrip())}")

    def exit_code(self, name: str) -> int | None:
        """Return how a server has ended; None: it runs."""
        return self.processes[name].poll()

    def kill(self, name: str) -> None:
        """Kill one server, as a crash would."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Stop all servers, and wait for them."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_WITHIN_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for thread in self._threads:
            thread.join(STOP_WITHIN_S)


def _print_line(line: str) -> None:
    console.err.print(line, soft_wrap=True)
