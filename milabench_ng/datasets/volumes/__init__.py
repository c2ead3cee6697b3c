"""Data sets of volumes."""
