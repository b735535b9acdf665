"""What this process asks of Python and of the system that it runs on."""
