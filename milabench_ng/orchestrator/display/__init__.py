"""What a user sees of a run, and what its folder keeps of that: sinks of the run's events."""
