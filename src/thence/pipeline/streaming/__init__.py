"""The audit of a trace that still grows, on Structured Streaming (docs/how-to/following.md).

``query`` makes a streaming DataFrame of violations of one of events, and ``stream`` follows a folder with it; ``run`` judges one
run by the scan of the audit, ``total`` its total order, ``state`` is what lies in the state store, and ``sink`` what a folder's
followers leave: these know no Spark. It imports ``source``, ``session``, ``scan``, ``tables`` and ``kernels``.
"""

from thence.pipeline.streaming.query import audit_stream, end_of_stream
from thence.pipeline.streaming.run import FollowLimits

__all__ = ["FollowLimits", "audit_stream", "end_of_stream"]
