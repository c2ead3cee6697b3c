"""Reads what the kernel reports about groups and processes."""
