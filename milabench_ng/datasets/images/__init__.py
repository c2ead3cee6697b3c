"""Datasets of pictures."""
