"""The rules, each a pure function from the evidence to its reasons, and their registry."""
