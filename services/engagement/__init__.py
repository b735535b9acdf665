"""Keeps how often and on which days members received, opened and clicked mailings.

The mode of the list and the latest answer of the person decide whether a member is recorded.
"""
