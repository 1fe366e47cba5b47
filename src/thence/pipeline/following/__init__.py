"""The audit of a trace that still grows: see docs/how-to/following.md."""
