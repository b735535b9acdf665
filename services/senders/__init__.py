"""Manages senders, receives their reports, and applies each report once."""
