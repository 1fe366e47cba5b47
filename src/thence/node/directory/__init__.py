"""Which names and subscriptions exist and where, who owns a mailbox, and what becomes of messages for a lost name."""
