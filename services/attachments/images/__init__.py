"""Uploaded images, converted to one form."""
