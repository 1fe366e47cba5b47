"""Programs that use servers: what clients, embedded members and their names may rely on."""
