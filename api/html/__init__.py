"""Renders HTML pages, whose only script is the script for passkeys."""
