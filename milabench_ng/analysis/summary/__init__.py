"""From records to a summary: statistics per test, and the defects of a folder."""
