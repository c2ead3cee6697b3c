"""Verification of a result folder by somebody who does not trust its sender: bundles, rules, and what they find."""
