"""Tables of a catalog: ``table:NAME`` in and out, of any format that Spark knows, such as Delta and Iceberg.

Rules:

* A name is as Spark takes it: ``events``, ``catalog.schema.events``, or ``delta.`/path` `` for a folder of another format. What
  is written has the format that the session says (``spark.sql.sources.default``), or the catalog.
* What Spark refuses is said in one line; if a format's package is missing, which one to give to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from thence.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX: Final = "table:"
"""What a place begins with that is a table, or the beginning of the names of some."""

PACKAGES: Final = {"delta": "io.delta:delta-spark", "iceberg": "org.apache.iceberg:iceberg-spark-runtime"}
MOST_PARTITIONS: Final = 1_000
"""Violations of more runs are not cut by them: each would be a folder."""

_NO_CLASS: Final = re.compile(r"DATA_SOURCE_NOT_FOUND|PLUGIN_CLASS_NOT_FOUND")
_NO_TABLE: Final = re.compile(r"TABLE_OR_VIEW_NOT_FOUND\].*?`(?:delta|iceberg)`\.`/")


def is_table(place: str) -> bool:
    """Return whether a place is in a catalog."""
    return place.startswith(PREFIX)


def read_table(spark: SparkSession, place: str) -> DataFrame:
    """Return the table that a place names."""
    with _said_shortly(spark, place, "read"):
        table = spark.table(place.removeprefix(PREFIX))
        if not table.columns:  # Over Spark Connect the table is looked for only now.
            raise TraceError(f"{place}: the table has no columns")
        return table


def write_table(table: DataFrame, place: str, runs: Sequence[str | None] = ()) -> None:
    """Write a table, in place of one that is there; by run, if there are several that can be names of folders."""
    writer = table.write.mode("overwrite")
    # A folder of partitions cannot tell the run "" from a run without a name.
    if 1 < len(runs) <= MOST_PARTITIONS and all(runs):
        writer = writer.partitionBy("run")
    with _said_shortly(table.sparkSession, place, "written"):
        writer.saveAsTable(place.removeprefix(PREFIX))


def drop_table(spark: SparkSession, place: str) -> None:
    """Let a table be gone."""
    with _said_shortly(spark, place, "dropped"):
        spark.sql(f"DROP TABLE IF EXISTS {place.removeprefix(PREFIX)}")


def refuse_forgetful(spark: SparkSession, place: str) -> None:
    """Refuse to write for somebody whose session is over then, and with it the catalog."""
    name = place.removeprefix(PREFIX)
    first = name.split(".", 1)[0]
    other = "." in name and spark.conf.get(f"spark.sql.catalog.{first}", None) is not None
    if not other and spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        raise ConfigError(
            f"--out {place}: the catalog of this session ends with the command; give Spark one that lasts, such as "
            "spark.sql.catalogImplementation=hive in spark-defaults.conf, or name a folder"
        )


@contextmanager
def _said_shortly(spark: SparkSession, place: str, what: str) -> Iterator[None]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if _NO_CLASS.search(text) or _NO_TABLE.search(text):
            wanted = [name for name in PACKAGES if name in text.partition("\n\tat ")[0].lower()]
            packages = " or ".join(PACKAGES[name] for name in wanted) or "the one of that format"
            raise ConfigError(
                f"{place}: cannot be {what}: Spark has no package for {' or '.join(wanted) or 'its format'}; give it with "
                f"--packages (spark.jars.packages): {packages}, the version for Spark {spark.version}"
            ) from None
        (reason, *_) = [line.strip() for line in text.splitlines() if "[" in line] or [text]
        raise TraceError(f"{place}: cannot be {what}: {reason[reason.find('[') :]}") from None
