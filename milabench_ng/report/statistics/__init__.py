"""How well numbers are known, and what a difference says. Pure."""
