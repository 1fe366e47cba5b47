"""What a server keeps on disk: the log, its segments and snapshots, spilled queues, and the state of mailboxes and agents.

May import ``net``, ``runtime``, ``trace`` and ``core``.
"""
