"""The fence: what holds each tenant to its share of the node, and the proof that it did."""
