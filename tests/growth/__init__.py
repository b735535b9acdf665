"""Measures how much slower API routes and periodic maintenance are on a larger database."""
