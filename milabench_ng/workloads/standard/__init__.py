"""The suite of 2020, one workload per file."""
