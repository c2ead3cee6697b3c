"""Data sets of hyperspectral images."""
