"""The HTML report: its charts, its tables, its page."""
