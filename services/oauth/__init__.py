"""Implements an OAuth authorization server, with which people grant access to other programs.

The library Authlib implements the OAuth protocol. The package ``services.oauth`` stores clients,
grants, codes and tokens, and decides whether each of them is valid.
"""
