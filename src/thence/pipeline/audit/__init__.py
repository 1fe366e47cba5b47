"""The audit: the judge's questions, asked of a trace that no machine can hold.

``job`` is the audit from beginning to end, ``auditor`` its steps, ``tasks`` what a worker does in one step, ``total`` the same
for total order; ``fragments``, ``survey`` and ``plan`` say how a trace is read and cut, ``lost`` what becomes of lost processes.
It imports everything in the pipeline but ``streaming``. Workers import it too, so it loads reports, metrics and importers only
where they are used.
"""

from thence.pipeline.audit.job import audit
from thence.pipeline.result import AuditResult

__all__ = ["AuditResult", "audit"]
