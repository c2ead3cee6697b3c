"""The vocabulary: types and pure functions that every room above uses."""
