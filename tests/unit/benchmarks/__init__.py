"""The benchmarks' own code: what their figures rest on."""
