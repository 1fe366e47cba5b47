"""Metrics, reports and the data source."""
