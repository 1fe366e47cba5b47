"""What models are made of, where tests and benchmarks use it too or one file would be too long. Nothing in here is a model.

May import ``sim``, ``trace`` and ``core``. Exports ``campus``, ``figures``, ``gateway_clocks``, ``layouts``, ``linked_systems``,
``printed_links``, ``shapes``, ``site_groups`` and ``wires``.
"""
