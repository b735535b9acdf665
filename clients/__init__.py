"""Clients of the API, and what makes their types and methods from the OpenAPI document."""
