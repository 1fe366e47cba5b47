"""Tests of ``thence.client.parts``."""
