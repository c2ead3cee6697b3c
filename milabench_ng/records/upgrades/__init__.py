"""Files of earlier schemas made into those of today, before they are decoded: one module a kind of file."""
