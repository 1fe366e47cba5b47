"""The Spark session: one for the whole command, made when it is first needed.

Rules:

* ``local[*]`` unless a master is named; a session that is there already (a notebook's, a cluster's) is used as it is.
* Spark prints nothing but errors (``log4j2.properties`` beside this file), and its web page is off unless ``spark.ui.enabled``
  says otherwise.
* Compiled kernels are cached in the temporary folder: where thence is installed, workers may not be allowed to write.
* Missing Java or a missing extra is said in one line, with what to install.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""For a session of our own; the addresses only where it is on this machine."""

_ONLY_LOCAL: Final = ("spark.driver.host", "spark.driver.bindAddress")


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Let a setting of a session have a value while the block runs."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


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
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"thence-numba-{os.getuid()}"))
    if chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("thence")
    builder = builder.remote(chosen) if chosen.startswith("sc://") else builder.master(chosen)
    for name, value in {**SETTINGS, **(settings or {})}.items():
        if chosen.startswith("local") or name not in _ONLY_LOCAL or name in (settings or {}):
            builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not chosen.startswith("sc://"):
        session.sparkContext.setLogLevel("ERROR")
    return session
