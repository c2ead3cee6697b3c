"""Bids, tenders and the acceptance of what was delivered."""
