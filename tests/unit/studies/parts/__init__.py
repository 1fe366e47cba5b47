"""Tests of ``thence.studies.parts``."""
