"""What runs: the driver around the core, connections, the store, servers and clients."""
