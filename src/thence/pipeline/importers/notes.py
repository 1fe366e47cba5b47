"""What cannot be judged in an imported trace, and why: kept in the trace, so that a verdict on it can say so.

Rules:

* It is metadata of the column ``kind``, which Spark writes into every part and gives back with the schema. So it stays with the
  rows when they are filtered, joined, copied or saved as a table.
* Reading looks at one part of each folder: the parts of one import have the same.
* One sentence each. It begins with the properties that it is about: ``fifo, causal in doubt: why``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from thence.errors import TraceError
from thence.trace.files import PARQUET_ENDING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "thence.caveats"
CARRIER: Final = "kind"
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"


def caveats(place: str) -> list[str]:
    """Say what cannot be judged in the Parquet trace at a path, glob or URL, and why; nothing where nothing was noted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from thence.pipeline.files import listing

    found: list[str] = []
    try:
        there = listing(place, PARQUET_ENDING)
        firsts = {str(PurePosixPath(path).parent): path for path in reversed(there.paths) if path.endswith(PARQUET_ENDING)}
        for path in sorted(firsts.values()):
            metadata = pq.read_schema(path, filesystem=there.files).metadata or {}
            found += _noted(json.loads(metadata.get(_SPARK_SCHEMA, b"{}")).get("fields", []))
    except (TraceError, pa.ArrowException, OSError, ValueError):
        return []
    return list(dict.fromkeys(found))


def caveats_of(events: DataFrame) -> list[str]:
    """Say the same of a DataFrame that was read from such a trace."""
    return _noted([field.jsonValue() for field in events.schema.fields])


def with_caveats(events: DataFrame, noted: Iterable[str]) -> DataFrame:
    """Return the trace with this noted in it."""
    return events.withMetadata(CARRIER, {KEY: list(noted)})


def _noted(fields: Iterable[dict[str, Any]]) -> list[str]:
    return [text for field in fields if field.get("name") == CARRIER for text in (field.get("metadata") or {}).get(KEY, [])]
