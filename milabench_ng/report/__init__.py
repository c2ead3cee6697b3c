"""The report: everything that is known of results and what a user asks of them, as one value."""
