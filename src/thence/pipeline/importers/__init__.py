"""Traces from elsewhere: logs and files that nobody wrote for us, made into a Parquet trace.

One file per step: ``sources`` finds the files, ``house``, ``shiviz`` and ``ndjson`` read one format each into the rows of
``staged``, ``writing`` writes them, and ``job`` puts it all together. What needs no Spark is in files of its own:
``patterns`` and ``logtext`` (the text of ShiViz logs), ``clocks`` (messages from vector clocks), ``mapping``, ``fields`` and
``matching`` (NDJSON), ``times``.
"""

from thence.pipeline.importers.job import Imported, import_trace

__all__ = ["Imported", "import_trace"]
