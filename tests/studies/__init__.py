"""Studies: mostly without Spark, on a small model of our own."""
