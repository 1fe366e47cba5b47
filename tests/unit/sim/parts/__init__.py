"""Tests of the parts of a simulated process."""
