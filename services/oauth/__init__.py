"""Implements an OAuth authorization server, so that people can give programs access to their data.

The library Authlib implements the OAuth protocol. Pressroom stores and validates clients, grants,
codes and tokens.
"""
