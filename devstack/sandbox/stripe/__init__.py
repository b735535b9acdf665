"""Stands in for Stripe with checkout sessions, payments, refunds, disputes and webhooks."""
