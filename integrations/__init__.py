"""Adapters for external services, each of which implements an interface (port) of Pressroom."""
