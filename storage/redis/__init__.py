"""Stores data in Redis that the installation can afford to lose."""
