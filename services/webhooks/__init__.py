"""Sends an owner's events to the owner's webhook endpoints (Standard Webhooks 1.0)."""
