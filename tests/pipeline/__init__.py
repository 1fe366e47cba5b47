"""Tests of the Spark pipeline; those that start a Java machine are marked ``spark``."""
