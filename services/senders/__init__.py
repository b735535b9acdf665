"""Manages senders, stores the reports that they post, and applies each report exactly once."""
