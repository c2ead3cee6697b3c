"""The result folder: its sessions, its ledger, what is done and what is to do."""
