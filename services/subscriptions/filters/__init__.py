"""Filters: which members of a list an owner means, written as JSON and never as SQL.

``grammar`` reads a filter into combinations of ``conditions`` on what ``names`` lists;
``member_filter`` has all of it for one list, and ``searching`` finds a page of its members.
docs/filters.md is what callers read.
"""
