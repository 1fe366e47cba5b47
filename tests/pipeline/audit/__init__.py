"""The audit on Spark, beside the judge."""
