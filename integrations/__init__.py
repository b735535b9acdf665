"""Adapters for external services, each behind an interface (port) of the product."""
