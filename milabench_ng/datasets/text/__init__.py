"""Datasets of texts."""
