"""Clients of the API, and the generator that creates parts of the clients from the API document."""
