"""Topups: prices, orders, and how evidence from a payment provider changes an order."""
