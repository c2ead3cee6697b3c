"""The 3D-UNet suite: training on patches of a volume, and inference over all of it, block by block."""
