"""Where a member takes part: its domains, and its ends of links, each with an ordering and a way to the others there.

May import all of ``core`` but ``core.member``. Exports ``link_end``, ``place`` and ``seen_streams``.
"""
