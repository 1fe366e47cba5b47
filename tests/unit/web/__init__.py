"""What servers answer over HTTP."""
