"""The report on a trace: metrics and verdict for people, on the terminal or as one HTML file.

Needs neither Spark nor Java: it reads the tables that ``thence.pipeline.metrics`` has written. Studies draw their plots and
fill their pages with the same code. Of the pipeline it imports ``tables`` and ``result``.
"""

from thence.pipeline.report.page import write_report
from thence.pipeline.report.terminal import print_report
from thence.pipeline.result import AuditResult

__all__ = ["AuditResult", "print_report", "write_report"]
