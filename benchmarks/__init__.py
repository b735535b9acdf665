"""Benchmarks, which compare the product with a baseline that runs alternately in the same run."""
