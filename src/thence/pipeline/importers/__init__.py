"""Traces from elsewhere: logs and files that nobody wrote for us, made into a Parquet trace.

``job`` puts it together: ``sources`` finds the files, ``native``, ``shiviz`` and ``ndjson`` read one format each into the rows
of ``staged``, and ``output`` writes them. What needs no Spark is in files of its own: ``logtext`` (the text of ShiViz logs),
``clocks`` (messages from vector clocks), ``mapping`` and ``matches`` (NDJSON), ``times``. Of the pipeline it imports ``tables``
and ``files``.
"""

from thence.pipeline.importers.job import Imported, import_trace

__all__ = ["Imported", "import_trace"]
