"""Many nodes: starts `mnb jobs` on each of them, and reads what they left."""
