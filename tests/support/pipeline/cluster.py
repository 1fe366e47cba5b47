"""A standalone Spark cluster on this machine: a master and workers, each a process of its own, from the PySpark package."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

START_S = 60
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Cluster:
    """Use it as a context manager: all processes are gone when the block ends."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.url = self._wait_for(master, r"Starting Spark master at (spark://\S+)")
            self._wait_for(master, r"New state: (ALIVE)")
            for number in range(self._workers):
                name = f"worker-{number}"
                log = self._start(
                    name,
                    "org.apache.spark.deploy.worker.Worker",
                    *("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name), self.url),
                )
                self._wait_for(log, r"(Successfully registered) with master")
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, name: str, main: str, *arguments: str) -> Path:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [home / "bin" / "spark-class", main, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=self._folder,
                    start_new_session=True,
                )
            )
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            found = re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(f"{log.name} never said {pattern!r}: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")

    @property
    def executors(self) -> int:
        """How many executors the workers have started so far."""
        logs = "".join(path.read_text(encoding="utf-8", errors="replace") for path in self._folder.glob("worker-*.log"))
        return logs.count("Asked to launch executor")

    @property
    def running(self) -> list[int]:
        """The executors that run now, by process."""
        workers = {process.pid for process in self._processes}
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and EXECUTOR in (entry / "cmdline").read_bytes():
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    found += [int(entry.name)] if parent in workers else []
        return sorted(found)

    def stop(self) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
