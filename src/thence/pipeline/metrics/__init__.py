"""What a trace measures: delays, waits, sizes, traffic, load and activity, as Parquet tables with named columns.

``write_metrics`` writes them all. Each is also a transform of its own, from a data frame to a data frame: ``facts``
first, the others from it. ``thence.pipeline.tables`` says what the columns are, and knows no Spark.
"""

from thence.pipeline.metrics.activity import activity, busiest, deeds, runs
from thence.pipeline.metrics.distributions import distributions
from thence.pipeline.metrics.facts import facts, prepared, typed
from thence.pipeline.metrics.traffic import domain_traffic, load, sent, sizes, traffic
from thence.pipeline.metrics.write import write_metrics

__all__ = [
    "activity",
    "busiest",
    "deeds",
    "distributions",
    "domain_traffic",
    "facts",
    "load",
    "prepared",
    "runs",
    "sent",
    "sizes",
    "traffic",
    "typed",
    "write_metrics",
]
