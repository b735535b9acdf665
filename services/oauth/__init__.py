"""The authorization server: people let other programs act for them, within scopes, until they take
it back. Authlib knows the RFCs; what is stored, and when it counts, is ours.
"""
