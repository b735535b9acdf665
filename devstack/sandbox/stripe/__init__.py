"""Simulates Stripe with checkout sessions, payments, refunds, disputes and webhooks."""
