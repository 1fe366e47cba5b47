"""Every run of a small case: one exhaustive search, and what it is used for.

``search`` tries all that may happen in a model. Three models use it: ``explorer`` (who sends and what arrives when, on one
topology), ``reconfiguration`` (a change from one topology to the next) and ``epochs`` (handshakes, crashes and old copies).
``member_steps`` and ``pasts`` turn members and what is known of a run into numbers.

It imports the core and ``sim.world``. It knows no time, no chance and no simulated network. Exports ``explorer`` and ``search``.
"""
