"""The events of a run, and the bus that carries them to listeners."""
