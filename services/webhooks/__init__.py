"""Webhooks: an owner's events are sent to the URLs that the owner names (Standard Webhooks 1.0)."""
