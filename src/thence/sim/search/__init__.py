"""Every run of a small case: one exhaustive search, and what it is used for.

``search`` tries all that may happen in a model, such as ``explorer``: who sends and what arrives when, on one topology. Models of
which no command is made are in ``tests/support/search``. ``member_steps`` and ``pasts`` turn members and what is known of a run
into numbers.

It imports the core and ``sim.world``. It knows no time, no chance and no simulated network. Exports ``explorer``,
``member_steps``, ``pasts`` and ``search``.
"""
