"""Requests of this process to Python and to the operating system."""
