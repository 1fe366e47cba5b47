"""Traces as a Spark data source: ``spark.read.format("thence")`` and ``spark.readStream.format("thence")``.

``reader`` is what Spark calls, ``pieces`` says what one task reads, ``batches`` reads it, and ``offsets`` says what a stream
has read. Of the pipeline it imports ``engine``.

Exports ``offsets`` and ``pieces`` too, for whoever wants to know how far a stream is.
"""

from thence.pipeline.source.reader import ThenceSource

__all__ = ["ThenceSource"]
