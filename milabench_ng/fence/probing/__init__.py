"""What of the fence can be had on this node, found out by trying."""
