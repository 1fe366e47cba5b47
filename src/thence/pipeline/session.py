"""The Spark session: one for the whole command, made when it is first needed.

Rules:

* ``local[*]`` unless a master is named; a session that is there already (a notebook's, a cluster's) is used as it is, and what
  ``spark-submit`` was told goes before our defaults.
* Spark prints nothing but errors (``log4j2.properties`` beside this file), and its web page is off unless ``spark.ui.enabled``
  says otherwise.
* Missing Java or a missing extra is said in one line, with what to install.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from thence.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"

DRIVER_MEMORY: Final = "2g"
"""What the Java side of a local session may use. The data is in Python's processes, and most of it never enters Java."""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "16",
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""For a session of our own; the addresses only where it is on this machine."""

_ONLY_LOCAL: Final = ("spark.driver.host", "spark.driver.bindAddress")


Progress = Callable[[str, int, int], None]
"""Hears of a step how many of its tasks are done, and how many there are."""

POLL_S: Final = 0.5


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Let settings of a session have other values while the block runs."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


@contextmanager
def watched(spark: SparkSession, step: str, progress: Progress | None) -> Iterator[None]:
    """Call the jobs of a block by the name of a step, and tell of their tasks. Over Spark Connect only begin and end are told."""
    context = getattr(spark, "_sc", None)
    over = threading.Event()
    thread: threading.Thread | None = None
    if context is not None:
        group = f"thence-{step}-{time.monotonic_ns()}"
        context.setJobGroup(group, f"thence: {step}", interruptOnCancel=True)
        if progress:
            thread = threading.Thread(target=_watch, args=(context, group, step, progress, over), daemon=True)
            thread.start()
    if progress:
        progress(step, 0, 1)
    try:
        yield
    finally:
        over.set()
        if thread:
            thread.join()
    if progress:
        progress(step, 1, 1)


def _watch(context: Any, group: str, step: str, progress: Progress, over: threading.Event) -> None:
    tracker = context.statusTracker()
    while not over.wait(POLL_S):
        done = total = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in (tracker.getStageInfo(stage) for stage in (info.stageIds if info else ())):
                if stage:
                    done, total = done + stage.numCompletedTasks, total + stage.numTasks
        if total:
            progress(step, done, total)


def spark_session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session that there is, or make one; ``settings`` override ours."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(f"Spark is not installed ({error}): pip install 'thence[spark]'") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    chosen = master or DEFAULT_MASTER
    if not chosen.startswith("sc://") and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise ConfigError("Spark needs Java 17 or later, and there is none: apt-get install openjdk-17-jre-headless")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    submitted = _submitted()
    builder = SparkSession.builder.appName("thence")
    if chosen.startswith("sc://"):
        builder = builder.remote(chosen)
    elif master or "spark.master" not in submitted:
        builder = builder.master(chosen)
    for name, value in {**SETTINGS, **(settings or {})}.items():
        if name in (settings or {}) or (name not in submitted and (chosen.startswith("local") or name not in _ONLY_LOCAL)):
            builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not chosen.startswith("sc://"):
        session.sparkContext.setLogLevel("ERROR")
    return session


def _submitted() -> Mapping[str, str]:
    """Return what ``spark-submit`` was told: that goes before our defaults."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf

    return dict(SparkConf().getAll())
