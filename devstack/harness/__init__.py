"""Isolated stacks for tests and benchmarks: services, and the Pressroom programs that use them."""
