"""Whom a list means by an address."""


def person_of(*, list_id: str, email: str, holder: str) -> str:
    """SQL for one row, whose ``id`` is that of the person: who has the address, else who had it.

    The owner knows a member who moved by no other address. A file that names them must neither make
    a second member of them nor miss them: they may have complained. Who has the address now comes
    first, if the list has a record of them.

    OFFSET 0 has Postgres look up one row at a time, and take the id for a value like any other when
    it chooses an index for what belongs to it. There is no LIMIT, for which it would rather read a
    table from its beginning than an index.

    Args:
        list_id, email, holder: expressions. The holder is the id of who has the address, or NULL.
    """
    return f"""
SELECT CASE WHEN former.id IS NULL OR EXISTS (
    SELECT FROM subscriptions WHERE list_id = {list_id} AND user_id = {holder} OFFSET 0
) THEN {holder} ELSE former.id END AS id
FROM (
    SELECT max(f.user_id) AS id FROM (
        SELECT user_id FROM former_addresses WHERE email = {email} OFFSET 0
    ) AS f CROSS JOIN LATERAL (
        SELECT email FROM subscriptions
        WHERE list_id = {list_id} AND user_id = f.user_id OFFSET 0
    ) AS known CROSS JOIN LATERAL (
        SELECT FROM users
        WHERE id = f.user_id AND erased_at IS NULL AND merged_into IS NULL OFFSET 0
    ) AS present
    WHERE known.email = {email}
) AS former OFFSET 0
"""  # noqa: S608
