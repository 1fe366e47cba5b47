"""Tests of the simulator's parts."""
