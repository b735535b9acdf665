"""Parses and applies filters, which are conditions in JSON that select members of a list.

The module ``names`` defines which columns, tags and fields a filter can use, and which values are
allowed. The module ``grammar`` parses filters. The module ``conditions`` builds the SQL conditions
for a filter. The module ``member_filter`` parses filters for one list. The module ``searching``
reads pages of members who match a filter, and ``member_counts`` counts the matching members. The
module ``owner_search`` finds an owner's lists and members by text. Filters are documented for API
users in docs/filters.md.
"""
