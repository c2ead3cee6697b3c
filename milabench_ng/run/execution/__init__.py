"""Runs the tenants of a batch, and measures and prepares their surroundings."""
