"""The result folder: its sessions, its ledger, finished and pending work."""
