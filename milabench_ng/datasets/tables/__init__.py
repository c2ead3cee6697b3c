"""Datasets of rows."""
