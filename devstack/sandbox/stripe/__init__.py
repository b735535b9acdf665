"""Stripe as Pressroom uses it: checkout sessions, payments, refunds, disputes, signed webhooks."""
