"""Deletes personal data: when a person is erased, or when its retention time is over.

A short transaction marks a person as erased (``erasure``). From its commit on, the person can't log
in, their address is free, and nothing is written about them. A job then erases the remaining rows
in batches (``stages``).
"""
