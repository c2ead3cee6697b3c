"""Data sets, a folder a kind: twins, generated once in the on-disk format of the real sets, or these."""
