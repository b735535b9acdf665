"""Builds the SQL statements that compare a chunk's rows with people, subscriptions and opt-outs.

``OFFSET 0`` in a subquery makes Postgres look up one row at a time with an index. Without ``OFFSET
0``, Postgres might scan the whole list for each row, because statistics are outdated during an
import.
"""

from models import MemberImport
from services.subscriptions.imports.chunks.staging import (
    JUDGED,
    STAGED,
    STAGED_DIGESTS,
    STAGED_EXTRAS,
)
from services.subscriptions.members.bounces import build_bounce_query
from services.subscriptions.members.opt_out_checks import (
    build_address_opt_out_query,
    build_opt_out_query,
)

# A subquery that hides the list's id from the query planner. If the query planner knew the list's
# id, outdated statistics could make it expect an empty list and scan all members for each row.
_LIST = "(SELECT CAST(:list_id AS bigint) AS list_id OFFSET 0)"
_LIST_OWNER = "(SELECT user_id FROM lists WHERE id = :list_id)"
# For each member who has changed their address, selects the one row of the file that the import
# applies. The file may contain several rows of one member, because a former address also identifies
# the member. If any row of the member is an opt-out, an opt-out is applied. Only one row of a
# member is applied. All further rows of the member count as duplicates, even in different chunks.
# Chunks with opt-outs are applied first, so that an opt-out is never skipped as the duplicate of an
# ordinary row. Rows are sorted by person, so that the transactions of two chunks can't deadlock.
_APPLIED_ROWS = """first AS (
    SELECT DISTINCT ON (user_id) user_id, number, has_left FROM known WHERE has_moved
    ORDER BY user_id, has_left DESC, is_withheld DESC, number
), recorded AS (
    INSERT INTO named_members AS n (import_id, user_id, has_left)
    SELECT :import_id, user_id, has_left FROM first ORDER BY user_id
    ON CONFLICT (import_id, user_id) DO UPDATE SET has_left = true
    WHERE excluded.has_left AND NOT n.has_left
    RETURNING user_id
), named AS (
    SELECT first.number FROM first JOIN recorded USING (user_id)
)"""
# Excludes rows that wouldn't change an active member. In a chunk with consent claims, rows of
# unchanged members are kept, because their consent claims must be stored.
_CHANGED_ROWS = (
    "WHERE k.has_left OR k.is_updated OR k.is_duplicate OR NOT k.is_active OR k.drops_expiry"
)
# Selects the stored opt-outs of the people in the imported rows, by user id or address digest. If a
# bounce turned a person's mail off, the query also returns a row with the opt-out kind ``email``,
# so that the import doesn't turn the person's mail on again.
_ROW_OPT_OUTS = f"""
    SELECT k.number, o.kind FROM known AS k CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL ({build_opt_out_query("l.list_id", "user_id = k.user_id")}) AS o
    WHERE :has_opt_outs
    UNION
    SELECT d.number, o.kind FROM {STAGED_DIGESTS} AS d CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL ({build_opt_out_query("l.list_id", "address_hmac = d.digest")}) AS o
    UNION
    SELECT d.number, 'list' FROM {STAGED_DIGESTS} AS d CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL ({build_address_opt_out_query(_LIST_OWNER, "l.list_id", "d.digest")}) AS o
    WHERE :has_address_opt_outs
    UNION
    SELECT k.number, 'email' FROM known AS k CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL ({build_bounce_query("l.list_id", "user_id = k.user_id")}) AS b
    WHERE :has_bounces
    UNION
    SELECT d.number, 'email' FROM {STAGED_DIGESTS} AS d CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL ({build_bounce_query("l.list_id", "address_hmac = d.digest")}) AS b
    WHERE :has_bounces
"""  # noqa: S608
_ROW_VALUES = "k.name, k.tier, k.paid_expiry, k.clears_expiry"
# Without the option ``update``, active members keep their name and tier.
_ROW_VALUES_WITH_EXTRAS = """CASE WHEN k.is_active AND NOT :update THEN '' ELSE k.name END,
        CASE WHEN k.is_active AND NOT :update THEN NULL ELSE k.tier END,
        CASE WHEN k.is_active AND NOT :update THEN NULL ELSE k.paid_expiry END,
        k.clears_expiry AND (:update OR NOT k.is_active)"""
# Finds the person whose address is in a row. The first choice is a member whose subscription has
# the row's address, even if the member has since changed their address. If the list has no such
# member, the query chooses the account with the address (``u``). If neither a member nor an account
# has the address, the query chooses a person who formerly had the address. ``OFFSET 0`` makes
# Postgres use an index even if outdated statistics suggest a scan. The subqueries of ``_PERSON``
# have no LIMIT, because a LIMIT would make Postgres scan a table instead of using an index.
_PERSON = """
SELECT CASE WHEN former.known IS NULL OR EXISTS (
    SELECT FROM subscriptions
    WHERE list_id = l.list_id AND user_id = u.id AND email = s.email OFFSET 0
) THEN coalesce(u.id, former.member, former.id) ELSE former.known END AS id
FROM (
    SELECT max(f.user_id) AS id, max(m.user_id) AS member,
        max(m.user_id) FILTER (WHERE m.email = s.email) AS known
    FROM (
        SELECT user_id FROM former_addresses WHERE email = s.email OFFSET 0
    ) AS f CROSS JOIN LATERAL (
        SELECT FROM users WHERE id = f.user_id AND erased_at IS NULL OFFSET 0
    ) AS present LEFT JOIN LATERAL (
        SELECT user_id, email FROM subscriptions
        WHERE list_id = l.list_id AND user_id = f.user_id OFFSET 0
    ) AS m ON true
) AS former OFFSET 0
"""


def _build_judge_statement(*, has_extras: bool) -> str:
    """Build the SQL statement that fills the table JUDGED and returns the verdict on each row. If a
    row has no name or no tier, an existing member's name or tier stays.
    """
    return f"""
WITH known AS (
    SELECT s.*, p.id AS user_id, m.id AS subscription_id,
        coalesce(m.status = 'active', false) AS is_active,
        EXISTS (SELECT FROM former_addresses WHERE user_id = p.id OFFSET 0) AS has_moved,
        NOT s.has_left AND coalesce(m.status = 'active', false)
            AND {_build_change_condition("s", has_extras=has_extras)} AS is_updated,
        s.tier IS NULL AND s.paid_expiry IS NOT NULL AND coalesce(m.type, 'free') = 'free'
            AND (:update OR m.status IS DISTINCT FROM 'active') AS drops_expiry
    FROM {STAGED} AS s CROSS JOIN {_LIST} AS l
    {f"LEFT JOIN {STAGED_EXTRAS} AS e ON e.number = s.number" if has_extras else ""}
    LEFT JOIN LATERAL (SELECT id FROM users WHERE email = s.email OFFSET 0) AS u ON true
    LEFT JOIN LATERAL ({_PERSON}) AS p ON true
    LEFT JOIN LATERAL (
        SELECT id, status, name, type, paid_expiry
            {", fields, tag_ids, joined_at" if has_extras else ""} FROM subscriptions
        WHERE list_id = l.list_id AND user_id = p.id OFFSET 0
    ) AS m ON true
), row_opt_outs AS ({_ROW_OPT_OUTS}), {_APPLIED_ROWS}, inserted AS (
    INSERT INTO {JUDGED}
    SELECT k.number, k.email, {_ROW_VALUES_WITH_EXTRAS if has_extras else _ROW_VALUES},
        coalesce(k.user_id, k.fresh_id), k.user_id IS NULL, k.subscription_id,
        CASE WHEN k.is_duplicate THEN 'duplicate'
            WHEN k.has_left THEN 'left'
            WHEN k.is_active THEN 'already'
            WHEN no_list.number IS NOT NULL THEN 'opted_out'
            ELSE 'added' END,
        no_mail.number IS NULL, k.is_updated AND NOT k.is_duplicate, k.drops_expiry
    FROM (
        SELECT *, has_moved AND number NOT IN (SELECT number FROM named) AS is_duplicate FROM known
        WHERE NOT is_withheld
    ) AS k
    LEFT JOIN row_opt_outs AS no_list ON no_list.number = k.number AND no_list.kind = 'list'
    LEFT JOIN row_opt_outs AS no_mail ON no_mail.number = k.number AND no_mail.kind = 'email'
    {_CHANGED_ROWS if not has_extras else ""}
    RETURNING number, verdict
)
SELECT verdict, array_agg(number) FROM inserted GROUP BY verdict
"""  # noqa: S608


def build_change_parameters(task: MemberImport) -> dict[str, bool]:
    """Return the parameters that decide what the import changes about active members. The rows of
    an API request never change active members.
    """
    return {"update": task.on_existing == "update", "completes": task.source == "file"}


def _build_change_condition(row: str, *, has_extras: bool) -> str:
    """Build an SQL condition that is true if a row would change the active member ``m``."""
    extras = """OR :completes AND e.number IS NOT NULL AND (
                CASE WHEN :update THEN m.fields || e.fields ELSE e.fields || m.fields END
                    <> m.fields
                OR NOT m.tag_ids @> e.tag_ids
                OR m.joined_at IS NULL AND e.joined_at IS NOT NULL
            )"""
    return f"""(
            :update AND {row}.name <> ''
                AND normalize({row}.name) IS DISTINCT FROM normalize(m.name)
            OR :update AND {row}.tier IS DISTINCT FROM m.type AND {row}.tier IS NOT NULL
            OR :update AND {build_new_expiry(row)} IS DISTINCT FROM m.paid_expiry
            {extras if has_extras else ""}
        )"""


def build_new_expiry(row: str) -> str:
    return f"""CASE WHEN coalesce({row}.tier, m.type) = 'free' THEN NULL
        WHEN {row}.paid_expiry IS NOT NULL OR {row}.clears_expiry THEN {row}.paid_expiry
        WHEN {row}.tier IS NULL OR m.paid_expiry > now() THEN m.paid_expiry END"""


# Recomputes whether the rows with the numbers ``:numbers`` would change active members, because
# some tags were removed from these rows.
JUDGE_AGAIN = f"""
UPDATE {JUDGED} AS j SET is_updated = {_build_change_condition("j", has_extras=True)}
FROM {JUDGED} AS k JOIN {STAGED_EXTRAS} AS e ON e.number = k.number CROSS JOIN LATERAL (
    SELECT name, type, paid_expiry, fields, tag_ids, joined_at FROM subscriptions
    WHERE id = k.subscription_id OFFSET 0
) AS m
WHERE j.number = k.number AND j.verdict = 'already' AND j.number = ANY(:numbers)
"""  # noqa: S608
# The SQL statements that fill the temporary table ``JUDGED``, for chunks with and without extras.
# Rows without extras contain only addresses, names and tiers.
JUDGE_STATEMENTS = {
    has_extras: _build_judge_statement(has_extras=has_extras) for has_extras in (False, True)
}
MARK_OVER_QUOTA = f"""
UPDATE {JUDGED} SET verdict = 'over_quota' WHERE verdict = 'added' AND number >= :first
"""  # noqa: S608
MARK_DENIED = f"UPDATE {JUDGED} SET verdict = 'denied' WHERE number = ANY(:numbers)"  # noqa: S608
COUNT_UPDATED = f"SELECT count(*) FROM {JUDGED} WHERE is_updated"  # noqa: S608
