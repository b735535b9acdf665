"""Erasure of people, and the time for which rows are kept.

A short transaction marks a person as erased (``erasure``). From its commit on they can't log in,
their address is free, and nothing is written about them. A job then goes through what is left of
them in batches (``stages``), however much that is.
"""
