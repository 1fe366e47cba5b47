"""Tests of ``thence.core.failover``."""
