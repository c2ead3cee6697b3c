"""Folder to summary: windows, statistics, scores, comparisons. Pure but for the reading of files."""
