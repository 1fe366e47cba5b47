"""Which messages all recipients have: stable acknowledgements, safe delivery and safe notification.

May import ``core.transport`` and what is below it. Exports ``accounts``, ``layer``, ``safe_notification``, ``safe_turn`` and
``stable``.
"""
