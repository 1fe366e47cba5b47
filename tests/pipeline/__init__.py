"""Tests of the pipeline: kernels without a JVM, and the whole on Spark."""
