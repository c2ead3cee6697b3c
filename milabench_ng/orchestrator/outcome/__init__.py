"""What was seen of a batch, why launches failed, and their records."""
