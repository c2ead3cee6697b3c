"""Data sets of rows."""
