"""The simulator: the fabric run in one thread, under faults, from one seed.

From the bottom up: ``kernel`` keeps simulated time, ``laws`` say how long things take, ``network`` carries frames
between processes and ``disk`` keeps what a process stored; members, scenarios and the explorer stand on these.

Rules:

* Time is integer nanoseconds, and only the kernel moves it. Nothing here reads a real clock.
* Chance comes from a ``random.Random`` that the caller seeds. The same seed gives the same run, in any process and
  under any ``PYTHONHASHSEED``.
"""
