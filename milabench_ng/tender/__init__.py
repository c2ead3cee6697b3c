"""Bids, tenders and acceptance of the delivery."""
