"""How precisely numbers are known, and what a difference means. Pure."""
