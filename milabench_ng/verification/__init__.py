"""Verification of a result folder whose sender is not trusted: bundles, rules and findings."""
