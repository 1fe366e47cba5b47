"""Rows of a Spark stream as messages of a fabric: ``stream.writeStream.format("thence")``.

    spark.dataSource.register(FabricSource)
    query = rows.writeStream.format("thence").option("url", "thence://127.0.0.1:7401").option("name", "etl")...

It lives here, and not with the reader in ``pipeline``, since it needs a client: pipeline and runtime do not know each other.

Rules:

* A row has a ``body`` (text or bytes), and ``to`` (a name, or a list of names) or ``topic``; where both are null it goes to
  everyone. A topic for all rows may be an option, and so may a ``token`` and an ``authority``, as for ``thence.connect``.
* Each partition writes as a client of its own, ``NAME-PARTITION``, in the order of its rows, and a task ends when all are
  accepted.
* Exactly once: messages are numbered by batch and row. A batch that Spark runs again, after a failure or from a checkpoint, has
  the same numbers, and the server leaves out those that it has. This needs what Spark asks of every sink: the same rows in the
  same partitions and order when a batch is run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

from thence.client.client import Client, connect
from thence.client.message import EVERYONE, To
from thence.errors import ConfigError
from thence.pipeline.source import ThenceSource

BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""By which Spark tells a task which batch it belongs to."""
ROWS_PER_TURN: Final = 512
"""How many rows are queued before the loop gets its turn."""
NUMBERS_PER_BATCH: Final = 1 << 32
"""How many rows of one partition a batch may have."""
COLUMNS: Final = {"body": {"string", "binary"}, "to": {"string", "array<string>"}, "topic": {"string"}}


@dataclass
class Published(WriterCommitMessage):
    """How many rows a task has written."""

    rows: int


class FabricSource(ThenceSource):
    """Everything that :class:`~thence.pipeline.source.ThenceSource` reads, and a writer."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> FabricWriter:  # noqa: N802 - Spark's name
        return FabricWriter(self.options, schema)


class FabricWriter(DataSourceStreamWriter):
    """Writes rows of a Spark stream into a fabric."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Check options and columns before anything runs."""
        for name in ("url", "name"):
            if not options.get(name):
                raise ConfigError(f"a stream into a fabric needs .option({name!r}, …)")
        columns = {field.name: field.dataType.simpleString() for field in schema}
        if "body" not in columns:
            raise ConfigError(f"a row for a fabric needs a column body; there are {', '.join(columns) or 'none'}")
        for column, kind in columns.items():
            if kind not in COLUMNS.get(column, ()):
                wanted = "; ".join(f"{name}: {' or '.join(sorted(kinds))}" for name, kinds in COLUMNS.items())
                raise ConfigError(f"column {column} of type {kind}: a row for a fabric may have {wanted}")
        self._url = options["url"]
        self._name = options["name"]
        self._topic = options.get("topic")
        self._token, self._authority = options.get("token"), options.get("authority")

    def write(self, iterator: Iterator[Row]) -> Published:
        """Write the rows of one task."""
        context = TaskContext.get()
        batch = context.getLocalProperty(BATCH_PROPERTY) if context is not None else None
        if context is None or batch is None:
            raise ConfigError("this writer is for streams: writeStream")
        return Published(asyncio.run(self._write(iterator, context.partitionId(), int(batch))))

    async def _write(self, rows: Iterator[Row], partition: int, batch: int) -> int:
        count = 0
        async with connect(self._url, f"{self._name}-{partition}", token=self._token, authority=self._authority) as client:
            client.number_from(batch * NUMBERS_PER_BATCH)
            for count, row in enumerate(rows, start=1):
                self._post(client, row)
                if count % ROWS_PER_TURN == 0:
                    await client.room()
                    await asyncio.sleep(0)
            await client.flush()
        return count

    def _post(self, client: Client, row: Row) -> None:
        values: dict[str, Any] = row.asDict()
        body = values["body"]
        written = body.encode() if isinstance(body, str) else bytes(body or b"")
        topic = values.get("topic") or (self._topic if values.get("to") is None else None)
        to: To = EVERYONE if values.get("to") is None else values["to"]
        if topic is not None:
            client.post_topic(topic, written)
        else:
            client.post(to, written)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: what was accepted is on its way."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing can be taken back, and nothing needs to be: the batch runs again with the same numbers."""
