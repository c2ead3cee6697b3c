"""Sinks of a run's events: what the user sees, and what the result folder keeps."""
