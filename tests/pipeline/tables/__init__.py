"""Traces and findings in tables of a catalog, and in declarative pipelines."""
