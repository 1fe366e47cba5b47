"""What models are made of, where tests and benchmarks use it too or one file would be too long. Nothing in here is a model."""
