"""NVIDIA's deep learning examples, as Lambda's GPU benchmark runs them."""
