"""How rates carry over from a measured device to another one, and what estimates are made of it."""
