"""Every run of a small case, for what no command explores: a change of the fabric, and handshakes with old copies of a store."""
