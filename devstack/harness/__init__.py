"""Isolated stacks that tests and benchmarks start: services, and programs of ours that use them."""
