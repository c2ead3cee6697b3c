"""Computer vision: published networks by name, trained and asked."""
