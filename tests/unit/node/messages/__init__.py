"""Tests of ``thence.node.messages``."""
