"""The data-loading study: one training of a U-Net on hyperspectral images, fed in five ways."""
