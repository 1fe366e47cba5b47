"""Who holds which message of a ``resilient`` domain, and whom it is handed on to.

May import what ``core.ordering`` may. Exports ``custody`` and ``stamps``.
"""
