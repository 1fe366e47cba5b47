"""Runs without sockets that crash at chosen points."""
