"""What is handed to batch systems, as text that can be read before it is used. Pure."""
