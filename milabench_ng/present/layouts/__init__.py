"""Tables as other suites print them: a module for each suite, with a table for CSV and tables for Markdown."""
