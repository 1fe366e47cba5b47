"""The parts of the report: words, numbers, plots and pages. ``thence.pipeline.report`` is the listener."""
