"""The rules, each a pure function from the evidence to a finding, and their registry."""
