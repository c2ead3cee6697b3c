"""Records become a summary: statistics per test, and what is wrong with a folder."""
