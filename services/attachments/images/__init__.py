"""Converts uploaded images into the stored formats."""
