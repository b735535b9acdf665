"""Filters: conditions in JSON that select members of a list.

``names`` contains the names and values that a filter may contain. ``grammar`` parses a filter.
``conditions`` builds SQL conditions. ``member_filter`` combines these modules for one list.
``searching`` reads pages of matching members, and ``member_counts`` counts matching members.
docs/filters.md documents filters for callers of the API.
"""
