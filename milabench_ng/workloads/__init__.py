"""The built-in workloads: a folder for each family, a file for each workload."""
