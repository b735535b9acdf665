"""Creates large databases for measurements.

SQL statements generate rows as if Pressroom had been used for several years.
"""
