"""JSON by a mapping: which records are events, and where their columns are, declared in a TOML file.

``mapping`` says what a file may declare, ``fields`` makes rows of JSON values by it, ``ndjson`` puts Spark around that, and
``presets`` names the mappings that come with thence. Exports ``mapping``, ``fields``, ``ndjson`` and ``presets``. It imports what
stands beside it in ``importers``, but for ``plan`` and ``job``.
"""
