"""Kernels: pure functions on Arrow and numpy arrays. They import no Spark and nothing else of the pipeline, and use no files.

``columns`` and ``encoder`` make numbers of rows, ``slices`` hold them, ``marks`` say what slices must know of each other,
``plan`` says where to cut, ``replay`` follows clocks, ``frontier`` says how far events can be judged, ``logged_clocks`` compares
clocks that a trace logs, ``compiler`` compiles loops.
"""
