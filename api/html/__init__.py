"""Renders HTML pages that contain no scripts, except for passkeys."""
