"""The simulator: the fabric run in one thread, under faults, from one seed.

From the bottom up: ``kernel`` keeps simulated time, ``laws`` say how long things take, ``network`` carries frames between
processes and ``disk`` keeps what a process stored. ``node`` is a process made of ``parts``. A ``simulation`` has a fabric of them
and the ``faults`` that happen in it. ``world`` moves members without time: ``search`` tries every run of it, ``scenario`` plays
one that is written down.

It imports the core and the trace. Rules:

* Time is integer nanoseconds, and only the kernel moves it. Nothing here reads a real clock.
* Chance comes from a ``random.Random`` that the caller seeds. The same seed gives the same run, in any process and
  under any ``PYTHONHASHSEED``.

Exports ``kernel``, ``laws``, ``network``, ``node``, ``options``, ``scenario`` and ``simulation``.
"""
