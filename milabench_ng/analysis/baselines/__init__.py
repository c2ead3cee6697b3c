"""Stored results to compare with: measured, published or estimated."""
