"""The record that a list has of an address."""


def member_of(columns: str, *, list_id: str, email: str, holder: str) -> str:
    """SQL for the record: of the person who has the address, else of one who had it.

    The owner knows such a person by no other address. A file that names them must neither make a
    second member of them nor miss them: they may have complained. Postgres looks for the second
    only where the first is missing. OFFSET 0 has it look up one row at a time.

    Args:
        columns: of ``subscriptions``.
        list_id, email, holder: expressions. The holder is the person's id, or NULL.
    """
    return f"""
SELECT {columns} FROM subscriptions WHERE list_id = {list_id} AND user_id = {holder}
UNION ALL
SELECT {columns} FROM (
    SELECT user_id AS former_id FROM former_addresses WHERE email = {email} OFFSET 0
) AS f CROSS JOIN LATERAL (
    SELECT * FROM subscriptions WHERE list_id = {list_id} AND user_id = former_id OFFSET 0
) AS known CROSS JOIN LATERAL (
    SELECT FROM users
    WHERE id = former_id AND erased_at IS NULL AND merged_into IS NULL OFFSET 0
) AS present
WHERE known.email = {email}
LIMIT 1
"""  # noqa: S608
