"""What a run tells while it goes on, and the bus that carries it to whoever listens."""
