"""What one launch shows over its course. Pure."""
