"""Data sets of sound."""
