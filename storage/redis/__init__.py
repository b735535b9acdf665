"""Stores data in Redis that may be lost without harm."""
