"""Tests of the trace format and the judge."""
