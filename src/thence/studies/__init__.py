"""Studies: the figures of the papers, measured again by thousands of simulations, with one command.

A study is one TOML file (``study``), its runs are independent tasks (``running``), its claims get verdicts (``claims``), and
what came out is a report (``report``). What is simulated is a model, a file of ``models``.

May import ``sim``, ``pipeline`` and what is below them. Exports ``claims``, ``report``, ``results``, ``rounds``, ``runs`` and
``study``.
"""
