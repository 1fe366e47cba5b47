"""Tests of ``thence.node.peers``."""
