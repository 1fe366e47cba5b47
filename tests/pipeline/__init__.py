"""The pipeline: kernels without Spark, and a few tests with a real session."""
