"""Traces from elsewhere: mappings, samples and clocks."""
