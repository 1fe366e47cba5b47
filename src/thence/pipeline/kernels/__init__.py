"""Kernels: pure functions on Arrow and numpy arrays. They import no Spark and nothing else of the pipeline, and use no files.

``columns`` and ``encoder`` make numbers of rows; ``gist`` and ``ledger`` say what crosses from slice to slice; ``story``,
``replay`` and ``circles`` follow clocks; ``inspection`` and ``rows`` find violations; ``window`` finds chains; ``frontier`` says
how far events can be judged; ``logged_clocks`` compares clocks that a trace logs; ``compiler`` compiles loops.
"""
