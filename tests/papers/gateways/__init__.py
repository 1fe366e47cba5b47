"""Claims of gateways that need more room."""
