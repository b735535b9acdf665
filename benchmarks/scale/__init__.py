"""Creates large databases for benchmarks.

The generated rows resemble the data of a Pressroom installation that is several years old.
"""
