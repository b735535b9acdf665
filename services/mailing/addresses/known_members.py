"""The record that a list has of an address."""


def member_of(columns: str, *, list_id: str, email: str, holder: str) -> str:
    """SQL for the record: of the person who has the address, else of a member who moved from it.

    The owner knows such a member by no other address. A file that names them must neither make a
    second member of them nor miss them: they may have complained. Postgres looks for the second
    only where the first is missing. It finds active members alone, by their index.

    Args:
        columns: of ``subscriptions``.
        list_id, email, holder: expressions. The holder is the person's id, or NULL.
    """
    return f"""
SELECT {columns} FROM subscriptions WHERE list_id = {list_id} AND user_id = {holder}
UNION ALL
SELECT {columns} FROM subscriptions AS moved
WHERE list_id = {list_id} AND email = {email} AND status = 'active' AND EXISTS (
    SELECT FROM users WHERE id = moved.user_id AND erased_at IS NULL AND merged_into IS NULL
)
LIMIT 1
"""  # noqa: S608
