"""From a request to a planned run; nothing is started yet."""
