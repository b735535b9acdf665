"""Renders HTML pages without scripts, except for passkeys."""
