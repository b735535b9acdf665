"""The authorization server: people let other programs act for them, within scopes, until they
revoke it. Authlib implements the RFCs; this folder decides what is stored and when it is valid.
"""
