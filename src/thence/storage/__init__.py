"""What a server keeps on disk: the log, its segments and snapshots, spilled queues, and the state of mailboxes and agents.

May import ``net``, ``runtime``, ``trace`` and ``core``. Exports ``agents``, ``bodies``, ``files``, ``frame_spill``, ``journal``,
``mailbox``, ``mailbox_safety``, ``mailbox_spill``, ``recovery``, ``rejections``, ``segments``, ``spill``, ``spill_files`` and
``store``.
"""
