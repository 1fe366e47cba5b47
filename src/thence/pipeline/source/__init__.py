"""Traces as a Spark data source: ``spark.read.format("thence")`` and ``spark.readStream.format("thence")``.

``reader`` is what Spark calls, ``pieces`` says what one task reads, ``batches`` reads it, and ``offsets`` says what a stream
has read. Of the pipeline it imports ``engine``.
"""

from thence.pipeline.source.reader import ThenceSource

__all__ = ["ThenceSource"]
