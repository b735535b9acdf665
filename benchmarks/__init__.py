"""Benchmarks that compare Pressroom with simpler baselines.

Each benchmark measures Pressroom and the baseline alternately in the same run.
"""
