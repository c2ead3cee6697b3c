"""Datasets, one folder per kind: twins, generated once in the on-disk format of the real sets, or real sets."""
