"""Real servers, real sockets, real files."""
