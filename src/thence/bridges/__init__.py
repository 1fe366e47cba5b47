"""Where a fabric meets other systems: each bridge is a client or a member whose far side is somebody else's.

May import ``client``, ``pipeline.source`` and what is below them. Exports nothing.
"""
