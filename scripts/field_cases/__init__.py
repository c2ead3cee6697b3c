"""The comparisons of scripts/bench-field, a module for each suite."""
