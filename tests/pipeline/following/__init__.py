"""The audit of a trace that still grows."""
