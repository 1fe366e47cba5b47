"""Tests of ``thence.node.driver``."""
