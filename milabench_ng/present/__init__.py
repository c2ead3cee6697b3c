"""A report as tables, CSV, Markdown, JSON or a page."""
