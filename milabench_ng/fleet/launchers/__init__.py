"""Launchers: each starts a script on many nodes, through an engine that exists."""
