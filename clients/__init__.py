"""Clients of the API, and a generator that creates parts of them from the OpenAPI document."""
