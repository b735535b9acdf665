"""Webhooks, which send an owner's events to the owner's URLs (Standard Webhooks 1.0)."""
