"""The addresses of members who moved: where their mail goes, and what owners see.

A list's own record keeps the address that its owner knows, until the member says otherwise.
"""
