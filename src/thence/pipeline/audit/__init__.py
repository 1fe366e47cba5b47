"""The audit: the judge's questions, asked of a trace that no machine can hold.

``audit`` takes a DataFrame and gives DataFrames, ``audit_trace`` takes a path and tells the verdict. ``transforms`` are the
steps: small functions from DataFrames to DataFrames. ``auditor`` puts them together, ``explain`` finds chains, ``total`` compares
orders, ``clocks`` looks at clocks, ``lost`` says what becomes of lost processes; ``local`` does it all without Spark.

It imports everything in the pipeline but ``streaming``. Workers import it too, so it loads reports, metrics and importers only
where they are used. Exports ``local``.
"""

from thence.pipeline.audit.auditor import Audit, audit
from thence.pipeline.audit.job import audit_trace, read_parquet_trace
from thence.pipeline.audit.transforms import assign_slices, judge, normalise, resolve, summarise, survey, validate
from thence.pipeline.result import AuditResult

__all__ = [
    "Audit", "AuditResult", "assign_slices", "audit", "audit_trace", "judge", "normalise", "read_parquet_trace", "resolve",
    "summarise", "survey", "validate",
]  # fmt: skip
