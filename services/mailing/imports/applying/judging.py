"""The statements that judge a chunk's rows against people, subscriptions and opt-outs."""

from services.mailing.addresses import known_members
from services.mailing.imports.applying.staging import JUDGED, STAGED, STAGED_DIGESTS, STAGED_EXTRAS

# In the order of an index: where most opt-outs are of one list, Postgres would look for one of this
# list in the whole table.
HAS_OPT_OUTS = """
SELECT count(*) FROM (
    SELECT 1 FROM opt_outs WHERE list_id = :list_id ORDER BY user_id LIMIT 1
) AS o
"""


# OFFSET 0 makes Postgres look up one row at a time. Its statistics know nothing of a list or an
# import that is growing now: it would expect one row, and choose a plan that reads the whole list
# for each row. People it would read all at once, while they are some millions.
#
# Without a tier in the file the member's own tier stays; so does the name without a name.
def _judge(*, has_extras: bool) -> str:
    return f"""
WITH said_no AS ({_SAID_NO}), known AS (
    SELECT s.*, p.id AS user_id, m.id AS subscription_id,
        coalesce(m.status = 'active', false) AS is_active,
        NOT s.has_left AND coalesce(m.status = 'active', false) AND (
            :update AND s.name <> '' AND s.name IS DISTINCT FROM m.name
            OR :update AND s.tier IS NOT NULL
                AND (s.tier <> m.type OR s.paid_expiry IS DISTINCT FROM m.paid_expiry)
            {_GETS_EXTRAS if has_extras else ""}
        ) AS is_updated
    FROM {STAGED} AS s CROSS JOIN {_LIST} AS l
    {f"LEFT JOIN {STAGED_EXTRAS} AS e ON e.number = s.number" if has_extras else ""}
    LEFT JOIN LATERAL (SELECT id FROM users WHERE email = s.email OFFSET 0) AS u ON true
    LEFT JOIN LATERAL ({_PERSON}) AS p ON true
    LEFT JOIN LATERAL (
        SELECT id, status, name, type, paid_expiry
            {", fields, tag_ids, joined_at" if has_extras else ""} FROM subscriptions
        WHERE list_id = l.list_id AND user_id = p.id OFFSET 0
    ) AS m ON true
), kept AS (
    INSERT INTO {JUDGED}
    SELECT k.number, k.email, {_NEW_VALUES if has_extras else "k.name, k.tier, k.paid_expiry"},
        coalesce(k.user_id, k.fresh_id), k.user_id IS NULL, k.subscription_id,
        CASE WHEN k.has_left THEN 'left'
            WHEN k.is_active THEN 'already'
            WHEN no_list.number IS NOT NULL THEN 'opted_out'
            ELSE 'added' END,
        no_mail.number IS NULL, k.is_updated
    FROM known AS k
    LEFT JOIN said_no AS no_list ON no_list.number = k.number AND no_list.kind = 'list'
    LEFT JOIN said_no AS no_mail ON no_mail.number = k.number AND no_mail.kind = 'email'
    -- Active members who stay as they are need no row.
    WHERE k.has_left OR k.is_updated OR NOT k.is_active
    RETURNING number, verdict
)
SELECT verdict, array_agg(number) FROM kept GROUP BY verdict
"""  # noqa: S608


# Of a list that is named itself Postgres thinks to know how many members it has. While statistics
# know nothing of it that is none: it would read all of them, by another index, for each row.
_LIST = "(SELECT CAST(:list_id AS bigint) AS list_id OFFSET 0)"
# The opt-outs of the rows' people, by the people and by the digests of their addresses.
_SAID_NO = f"""
    SELECT s.number, o.kind FROM {STAGED} AS s CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL (SELECT id FROM users WHERE email = s.email OFFSET 0) AS u
    CROSS JOIN LATERAL (
        SELECT kind FROM opt_outs WHERE list_id = l.list_id AND user_id = u.id OFFSET 0
    ) AS o
    WHERE :has_opt_outs
    UNION
    SELECT d.number, o.kind FROM {STAGED_DIGESTS} AS d CROSS JOIN {_LIST} AS l
    CROSS JOIN LATERAL (
        SELECT kind FROM opt_outs WHERE list_id = l.list_id AND address_hmac = d.digest OFFSET 0
    ) AS o
"""  # noqa: S608
# An active member who only gets fields and tags keeps name and tier.
_NEW_VALUES = """CASE WHEN k.is_active AND NOT :update THEN '' ELSE k.name END,
        CASE WHEN k.is_active AND NOT :update THEN NULL ELSE k.tier END,
        CASE WHEN k.is_active AND NOT :update THEN NULL ELSE k.paid_expiry END"""
# What a member has stays, unless the import updates; what they lack they get in any case.
_GETS_EXTRAS = """OR e.number IS NOT NULL AND (
                CASE WHEN :update THEN m.fields || e.fields ELSE e.fields || m.fields END
                    <> m.fields
                OR NOT m.tag_ids @> e.tag_ids
                OR m.joined_at IS NULL AND e.joined_at IS NOT NULL
            )"""
_PERSON = known_members.person_of(list_id="l.list_id", email="s.email", holder="u.id")
# By whether rows of the chunk have extras.
JUDGE = {has_extras: _judge(has_extras=has_extras) for has_extras in (False, True)}

PUT_OVER_QUOTA = f"""
UPDATE {JUDGED} SET verdict = 'over_quota' WHERE verdict = 'added' AND number >= :first
"""  # noqa: S608
PUT_DENIED = f"UPDATE {JUDGED} SET verdict = 'denied' WHERE number = ANY(:numbers)"  # noqa: S608
COUNT_UPDATED = f"SELECT count(*) FROM {JUDGED} WHERE is_updated"  # noqa: S608
