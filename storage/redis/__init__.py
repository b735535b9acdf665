"""Data in Redis: nothing that must survive it."""
