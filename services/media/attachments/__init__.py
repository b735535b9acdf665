"""Uploaded images: accepted by the API, converted by a media worker, served to readers."""
