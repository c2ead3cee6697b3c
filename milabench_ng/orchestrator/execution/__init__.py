"""Tenants and what surrounds them while a batch runs."""
