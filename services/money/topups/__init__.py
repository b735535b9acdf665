"""Buying credits: prices, orders, and what a payment provider's word does to them."""
