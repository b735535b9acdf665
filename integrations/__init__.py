"""Adapters for external services. Each adapter implements an interface (port) of Pressroom."""
