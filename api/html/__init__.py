"""Renders HTML pages, on which the script for passkeys is the only script."""
