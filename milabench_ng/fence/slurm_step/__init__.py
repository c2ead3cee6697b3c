"""The Slurm allocation of this process, and the programs for its steps."""
