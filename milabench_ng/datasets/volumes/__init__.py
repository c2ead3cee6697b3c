"""Datasets of volumes."""
