"""How replicas of a relay take over from each other, and payloads that travel ahead of their turn.

May import ``core.transport`` and what is below it. Exports ``early_payloads``, ``replicas`` and ``secured``.
"""
