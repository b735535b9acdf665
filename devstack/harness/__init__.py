"""Runs isolated stacks of services and Pressroom's programs for tests and benchmarks."""
