"""Tests of ``thence.cli.traces``."""
