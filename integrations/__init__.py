"""Adapters for external services, which implement Pressroom's interfaces (ports)."""
