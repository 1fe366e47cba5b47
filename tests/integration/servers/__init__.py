"""Servers as their operators see them: commands, metrics, backups, upgrades, and fair shares."""
