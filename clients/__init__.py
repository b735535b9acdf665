"""Clients of the API, and a generator for the parts that follow from the OpenAPI document."""
