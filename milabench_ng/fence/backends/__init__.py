"""The back ends, one file each, all with the same interface."""
