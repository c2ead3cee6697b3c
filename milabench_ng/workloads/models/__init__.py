"""Networks that several workloads or families run."""
