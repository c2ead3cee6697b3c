"""What is unusual and proves nothing, a file each with its `DOUBT`, as pure functions from the evidence."""
