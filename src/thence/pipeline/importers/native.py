"""Our own formats, read through Spark: the same columns and the same complaints as :mod:`thence.trace`, in any amount.

Rules:

* JSON lines are decoded by the reader of :mod:`thence.trace.jsonl` itself; a line that it refuses is a bad row.
* Parquet is checked by Spark. A column of another type altogether is an error for the whole source, since no row of it can be
  read; a null where there must be none, or a number too large, makes that row bad.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from thence.errors import TraceError
from thence.pipeline.importers.lines import read_lines
from thence.pipeline.importers.sources import Source, decoded, file_path, partition_of, reading
from thence.pipeline.importers.staged import BAD, BESIDE, BESIDE_LINES, EVENT, MAX_RAW_CHARACTERS, Partition, Row
from thence.pipeline.tables import TRACE, ddl
from thence.trace.complaints import EXPECTED
from thence.trace.events import COLUMNS, INT32_MAX, INT32_MIN, REQUIRED
from thence.trace.files import NULL_PARTITION, PARTITION_COLUMNS
from thence.trace.jsonl import decode_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_INT32_COLUMNS: Final = ("bytes", "overhead")


def read_jsonl(spark: SparkSession, source: Source) -> DataFrame:
    """Return the staged rows of JSON lines."""
    return read_lines(spark, source, decode_house_line).drop(*(column.name for column in BESIDE_LINES))


def decode_house_line(line: bytes, partition: Partition) -> list[Row]:
    """Decode one line as the trace's own reader does."""
    return [msgspec.structs.asdict(decode_line(line, partition))]


def read_parquet(spark: SparkSession, source: Source) -> DataFrame:
    """Return the staged rows of a Parquet trace."""
    from pyspark.sql import functions as f

    with reading(source.place):
        found = source.reader(spark).parquet(source.place).schema
    _check_types(found, source)
    wide = [column._replace(kind="bigint") if column.name in _INT32_COLUMNS else column for column in TRACE]
    rows = source.reader(spark).schema(ddl(wide)).parquet(source.place)
    path = file_path()
    rows = rows.select(*_columns(path), path.alias("source"), (f.col("_metadata.row_index") + 1).alias("line"))
    reason = f.concat_ws("; ", *_problems())
    rows = rows.withColumn("reason", f.when(reason != "", reason))
    good = f.col("reason").isNull()
    beside = {
        "what": f.when(good, f.lit(EVENT)).otherwise(f.lit(BAD)),
        "lines": f.lit(1).cast("bigint"),
        "block": f.lit(0).cast("bigint"),
        "raw": f.when(~good, f.substring(f.to_json(f.struct(*COLUMNS)), 1, MAX_RAW_CHARACTERS)),
    }
    staged = [f.when(good, f.col(name)).cast(kind).alias(name) for name, kind, _ in TRACE]
    return rows.select(*staged, *(beside.get(name, f.col(name)).alias(name) for name, *_ in BESIDE))


def _columns(path: Column) -> list[Column]:
    """Return the columns, those that a folder's name gives filled in where the row has none."""
    from pyspark.sql import functions as f

    columns = []
    for name in COLUMNS:
        column = f.col(name)
        if name in PARTITION_COLUMNS:
            named = decoded(f.regexp_extract(path, f"/{name}=([^/]*)/", 1))
            column = f.coalesce(column, f.when(~named.isin("", NULL_PARTITION), named))
        columns.append(column.alias(name))
    return columns


def _problems() -> list[Column]:
    """Return, per column, the words that say what is wrong with it; null where nothing is."""
    from pyspark.sql import functions as f

    def said(name: str, wrong: Column, found: Column) -> Column:
        return f.when(wrong, f.concat(f.lit(f"column '{name}': expected {EXPECTED[name][0]}, found "), found))

    found_null = f.lit("null")
    problems = [said(name, f.col(name).isNull(), found_null) for name in REQUIRED]
    problems.append(said("to", f.exists("to", lambda item: item.isNull()), f.to_json("to")))
    problems += [said(name, ~f.col(name).between(INT32_MIN, INT32_MAX), f.col(name).cast("string")) for name in _INT32_COLUMNS]
    nulls = f.exists(f.map_values("clock"), lambda item: item.isNull())
    problems.append(said("clock", nulls, f.to_json("clock")))
    return problems


def _check_types(found: StructType, source: Source) -> None:
    given = set.union(*(set(partition_of(file.path)) for file in source.files))
    wrong = []
    for column, kind, _ in TRACE:
        words = EXPECTED[column][0]
        fields = [field for field in found.fields if field.name == column]
        if fields and not _fits(kind, fields[0].dataType):
            wrong.append(f"column '{column}': expected {words}, found the type {fields[0].dataType.simpleString()}")
        elif not fields and column in REQUIRED and column not in given:
            wrong.append(f"column '{column}': expected {words}, found no such column")
    if wrong:
        raise TraceError("\n".join(f"{source.place}: {problem}" for problem in wrong))


def _fits(wanted: str, found: DataType) -> bool:
    integers = {"tinyint", "smallint", "int", "bigint"}
    name = found.simpleString()
    if name == "void":
        return True
    if wanted in {"int", "bigint"}:
        return name in integers
    if wanted.startswith("map"):
        return name in {f"map<string,{kind}>" for kind in integers}
    return name in {wanted, wanted.replace("string", "void")}
