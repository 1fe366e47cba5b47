"""Tests of ``thence.cli.servers``."""
