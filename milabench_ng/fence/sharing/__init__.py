"""How a node is divided among tenants. Pure."""
