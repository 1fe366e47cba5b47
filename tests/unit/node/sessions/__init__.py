"""Tests of ``thence.node.sessions``."""
