"""The loop around ``member.step``: steps, commits to the store, and what follows from them.

May import ``storage``, ``runtime`` and ``core``. Exports ``commits`` and ``driver``.
"""
