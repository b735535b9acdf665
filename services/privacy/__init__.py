"""Deletes personal data when a person is erased, or after the retention period of the data.

A short transaction marks a person as erased (``erasure``). An erased person can't log in, the
address of the person is free again, and nothing more is written about the person. A job then erases
the remaining rows in batches (``stages``).
"""
