"""The suite of 2020, one workload a file."""
