"""Benchmarks that compare Pressroom with simpler baselines.

Each run measures Pressroom and a baseline alternately.
"""
