"""Datasets of hyperspectral images."""
