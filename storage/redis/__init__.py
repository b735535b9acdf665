"""Stores expendable data in Redis, which the installation can afford to lose."""
