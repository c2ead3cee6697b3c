"""Datasets of sound."""
