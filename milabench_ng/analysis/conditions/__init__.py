"""Conditions of a launch against their limits (`model.limits`): one module a source. Pure."""
