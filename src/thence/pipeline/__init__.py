"""Traces on Spark: audits of traces that no machine can hold, measurements, imports, and a data source.

Spark moves the data; what is done with it is done by ``scan`` and ``kernels`` on Arrow batches, which know no Spark and are
tested without it. Needs the ``spark`` extra and Java 17; nothing else in thence does.

A package imports only what stands below it:

    audit | streaming             is order kept, in a trace that is whole, and in one that grows
    importers | metrics | report  traces from elsewhere; what a trace measures; both for people
    source                        traces as a Spark data source
    session                       the Spark session
    scan                          a run judged slice by slice
    kernels                       functions on arrays
    result, files, tables         what was found; where files are; the columns of all tables
"""
