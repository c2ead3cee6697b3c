"""Turns a request into a planned run; starts nothing."""
