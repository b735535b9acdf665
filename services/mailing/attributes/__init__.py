"""Fields of an owner and tags of a list: what they are, and the values that members have.

A member's row keeps values by the ids of fields and tags, so a field or tag that is renamed or ends
rewrites no member.
"""
