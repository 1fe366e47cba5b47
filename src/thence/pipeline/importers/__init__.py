"""Traces from elsewhere: logs and files that nobody wrote for us, made into a Parquet trace.

``job`` puts it together: ``plan`` decides what a source is, ``sources`` finds the files, ``native``, ``shiviz`` and ``mapped``
read one format each into the rows of ``staged``, and ``output`` writes them, with ``notes`` on what is in doubt in them. What
needs no Spark is in files of its own: ``logtext`` (the text of ShiViz logs), ``clocks`` (messages from vector clocks),
``matches``, ``times``. Of the pipeline it imports ``tables`` and ``files``.
"""

from thence.pipeline.importers.job import Imported, import_trace
from thence.pipeline.importers.notes import caveats, caveats_of
from thence.pipeline.importers.plan import SourceOptions, check, expected_caveats

__all__ = ["Imported", "SourceOptions", "caveats", "caveats_of", "check", "expected_caveats", "import_trace"]
