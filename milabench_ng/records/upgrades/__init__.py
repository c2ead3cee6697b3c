"""Upgrades of files of earlier schemas to today's, before decoding: one module per kind of file."""
