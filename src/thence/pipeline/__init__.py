"""The audit of traces that no machine can hold, on Spark.

Spark moves the data; what is done with it is done by kernels on Arrow batches (``kernels``), which know no Spark and are
tested without it. Needs the ``spark`` extra and Java 17; nothing else in thence does.
"""
