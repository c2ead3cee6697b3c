"""The built-in workloads: one file each."""
