"""mnb: a multi-tenant stress test for GPU nodes."""

__version__ = "0.3.0"
