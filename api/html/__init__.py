"""Renders HTML pages, which contain no scripts except the script for passkeys."""
