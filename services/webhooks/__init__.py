"""Sends an owner's events to the owner's webhook endpoints, as defined by Standard Webhooks 1.0."""
