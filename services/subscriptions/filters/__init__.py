"""Parses and applies filters, which are conditions in JSON that select members of a list.

``member_filter`` parses filters for one list, with ``grammar`` and ``names``. Filters are
documented for API users in docs/filters.md.
"""
