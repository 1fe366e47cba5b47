"""A disk that fails under a running server: the server ends with one line that names the file and says what to do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import thence
from tests.support.servers.faulty_disk import Disk
from tests.support.servers.running import PATIENCE_S, flat, url, wait_for_server
from thence.core.topology.model import Topology
from thence.core.topology.toml import write


@pytest.mark.parametrize(("fault", "doing"), [("eio_writes", "writing {} failed"), ("eio_syncs", "fsync failed on {}")])
def test_a_server_whose_disk_fails_ends_with_one_line(fault: str, doing: str, tmp_path: Path) -> None:
    topology, data = flat("s1"), tmp_path / "data"
    data.mkdir()
    (tmp_path / "one.toml").write_text(write(topology), encoding="utf-8")
    disk = Disk(data, tmp_path / "beside")
    command = [sys.executable, "-m", "thence", "serve", str(tmp_path / "one.toml"), "--server", "s1", "--data", str(data)]
    environment = {**os.environ, **disk.environment()}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            wait_for_server(topology, "s1")
            disk.set(**{fault: 1})
            asyncio.run(_knock(topology))
            _, said = server.communicate(timeout=PATIENCE_S)
        finally:
            server.kill()
    assert server.returncode == 2
    assert "Traceback" not in said
    *before, last = said.splitlines()
    assert last.startswith(f"thence: error: {doing.format(data / 'segment-00000000000000000001.log')}: Input/output error")
    assert "disk" in last, "it says what to do"
    assert [line for line in before if "error:" in line] == []


async def _knock(topology: Topology) -> None:
    """Come in under a new name, which has to be stored: it is never answered."""
    with pytest.raises(TimeoutError):
        async with thence.connect(url(topology, "s1"), "ann", connect_timeout=1.0):
            pass
