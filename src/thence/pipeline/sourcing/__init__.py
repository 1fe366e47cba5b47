"""The parts of the data source: what to read in one task, how, and what has been read. ``thence.pipeline.source`` is the
listener."""
