"""For every claim of the papers a mistake in the code, and the cited test that has to find it: one module for each paper."""
