"""Which names and subscriptions exist and where, who owns a mailbox, and what becomes of messages for a lost name.

May import ``node.history``, ``storage``, ``net`` and ``core``. Exports ``announcement_checks``, ``announcement_memory``,
``closings``, ``directory``, ``homes``, ``mailboxes`` and ``subscriptions``.
"""
