"""Implements an OAuth authorization server, so that people can let programs use their data.

The library Authlib implements the OAuth protocol. Pressroom stores the OAuth clients, grants, codes
and tokens, and decides whether they are valid.
"""
