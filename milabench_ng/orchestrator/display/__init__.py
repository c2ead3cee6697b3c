"""What a user sees while a run goes on."""
