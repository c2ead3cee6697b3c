"""Analysis of the course of a single launch. Pure."""
