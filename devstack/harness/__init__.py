"""Isolated stacks for tests and benchmarks, with services and Pressroom's programs."""
