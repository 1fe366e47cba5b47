"""Tests of ``thence.cli.messages``."""
