"""What a trace measures: delays, waits, sizes, traffic, load and activity, as Parquet tables with named columns.

``measured`` gives them all, ``write_metrics`` writes them. Each is also a transform of its own, from a data frame to a data
frame: ``facts`` first, the others from it. Of the pipeline it imports ``tables``, ``files`` and ``session``; ``tables`` says what
the columns are, and knows no Spark.
"""

from thence.pipeline.metrics.distributions import distributions
from thence.pipeline.metrics.facts import facts, typed
from thence.pipeline.metrics.write import measured, write_metrics

__all__ = ["distributions", "facts", "measured", "typed", "write_metrics"]
