"""What the kernel says of groups and processes."""
