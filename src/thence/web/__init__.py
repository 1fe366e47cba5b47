"""What others can ask a running server for over HTTP: metrics, and whether it is well."""
