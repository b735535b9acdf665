"""Watches segments, and records which members enter and leave a watched segment."""
