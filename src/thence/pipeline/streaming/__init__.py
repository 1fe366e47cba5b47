"""The audit of a trace that still grows, on Structured Streaming (docs/how-to/following.md).

``stream`` runs it on Spark, ``store`` keeps its state and its tables; ``follower``, ``run`` and ``flight`` judge, and know no
Spark. It imports ``source``, ``tables`` and ``kernels``.
"""

from thence.pipeline.streaming.stream import Options, follow

__all__ = ["Options", "follow"]
