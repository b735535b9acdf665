"""Measures whether the calls of the security tests stay fast on a larger database."""
