"""The OAuth authorization server, where people grant other programs access within scopes.

The library Authlib implements the protocol. This package stores the clients, grants, codes and
tokens, and decides whether they are valid.
"""
