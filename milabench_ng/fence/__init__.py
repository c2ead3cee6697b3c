"""The fence: holds each tenant to its share of the node, and proves that it did."""
