"""Benchmarks that compare Pressroom with simpler baselines.

Product and baseline are measured alternately in the same run.
"""
