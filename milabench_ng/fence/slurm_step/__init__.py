"""The Slurm allocation of this process, and the programs inside its steps."""
