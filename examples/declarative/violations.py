"""Violations of order as tables of a Spark Declarative Pipeline; each run of it judges what has come since the last one.

spark-pipelines run --spec examples/declarative/spark-pipeline.yml

``audit_stream`` is called here and not in ``violations``: Spark lets no code look at columns in there.
"""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

from thence.pipeline.streaming import audit_stream

spark = SparkSession.active()
place = str(spark.conf.get("thence.events"))
events = spark.readStream.schema(spark.read.parquet(place).schema).parquet(place)
found = audit_stream(events, require=["fifo", "causal"], hold_s=None)


@pipelines.table
def violations() -> DataFrame:
    """A row for each violation."""
    return found


@pipelines.materialized_view
def violations_by_process() -> DataFrame:
    """How many there are, for each property and process."""
    return spark.read.table("violations").groupBy("property", "process").count()
