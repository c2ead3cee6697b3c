"""The modern suite: what nodes are bought for today, with random weights and generated data."""
