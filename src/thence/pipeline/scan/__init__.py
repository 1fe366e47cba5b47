"""The scan: a run judged slice by slice, by pure functions on arrays. No Spark, no files.

``run`` is the scan, with the state of a run between two slices; ``story`` puts a slice and what is on its way into it together,
``flights`` are the messages on their way, ``circles`` finds what waits for itself, ``inspection`` judges deliveries, ``rows``
makes findings into rows, ``window`` finds chains; ``here`` does a whole audit in this process. It imports ``kernels`` and the
judge's words and chains.

Exports ``flights``, ``here``, ``rows``, ``run`` and ``window``.
"""
