"""The audit of a trace that still grows: see docs/following.md."""
