"""The back ends, one file each, all of the same shape."""
