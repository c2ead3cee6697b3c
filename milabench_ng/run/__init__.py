"""Runs a plan: starts and stops tenants together, watches them, writes records. Never imports torch."""
