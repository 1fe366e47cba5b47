"""What the checks of the judge share: one run in order, happens-before, clocks, chains and cycles.

Imports nothing of ``core``, so that the judge stays independent of what it judges. Exports ``chain``, ``clocks``, ``evidence``,
``history``, ``inbox`` and ``lost``.
"""
