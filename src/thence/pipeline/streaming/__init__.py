"""The audit of a trace that still grows, on Structured Streaming (docs/how-to/following.md).

``stream`` runs it on Spark, ``store`` keeps its state and its tables; ``follower`` and ``run`` judge by the scan of the audit,
and know no Spark. It imports ``source``, ``scan``, ``tables`` and ``kernels``.
"""

from thence.pipeline.streaming.stream import Options, follow

__all__ = ["Options", "follow"]
