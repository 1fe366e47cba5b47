"""Tests of ``thence.node.directory``."""
