"""What was observed of a batch, why launches failed, and their records."""
