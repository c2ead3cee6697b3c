"""Runs a plan: starts tenants, start line and common stop, watches, writes records. Never imports torch."""
