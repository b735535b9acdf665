"""Builds the SQL statements that store the changes in a chunk of imported rows."""

from services.subscriptions.imports.chunks.judge_statements import build_new_expiry
from services.subscriptions.imports.chunks.staging import JUDGED, STAGED_DIGESTS, STAGED_EXTRAS

# Counts the existing people, the new people and the changed subscriptions in a chunk.
COUNT_WRITES = f"""
SELECT count(*) FILTER (WHERE NOT is_new_person), count(*) FILTER (WHERE is_new_person),
    count(*) FILTER (WHERE subscription_id IS NOT NULL AND verdict <> 'left')
FROM {JUDGED} WHERE verdict IN ('added', 'left') OR is_updated
"""  # noqa: S608
# Locks the existing people in a chunk, so that they can't be erased until the transaction ends.
# Returns the number of locked people, which doesn't include people who were already erased.
LOCK_KNOWN_PEOPLE = f"""
SELECT count(*) FROM (
    SELECT user_id FROM {JUDGED}
    WHERE NOT is_new_person AND (verdict IN ('added', 'left') OR is_updated) ORDER BY user_id
) AS j CROSS JOIN LATERAL (
    SELECT FROM users WHERE id = j.user_id AND erased_at IS NULL FOR KEY SHARE OFFSET 0
) AS held
"""  # noqa: S608
_NEW_PEOPLE = "is_new_person AND verdict IN ('added', 'left')"
ADD_PEOPLE = f"""
INSERT INTO users (id, email)
SELECT user_id, email FROM {JUDGED} WHERE {_NEW_PEOPLE} ORDER BY email
"""  # noqa: S608
ADD_MISSING_PEOPLE = f"{ADD_PEOPLE} ON CONFLICT DO NOTHING"
FIND_PEOPLE_AGAIN = f"""
WITH found AS (
    SELECT u.id, u.email FROM {JUDGED} AS j JOIN users AS u ON u.email = j.email
    WHERE {_NEW_PEOPLE} ORDER BY u.id FOR KEY SHARE OF u
)
UPDATE {JUDGED} SET user_id = found.id FROM found
WHERE {JUDGED}.is_new_person AND {JUDGED}.email = found.email
"""  # noqa: S608
# Stores the opt-outs that a chunk contains. An imported opt-out has the source ``complaint``,
# ``bounce`` or ``import``.
ADD_OPT_OUTS = f"""
INSERT INTO opt_outs (list_id, user_id, address_hmac, kind, source)
SELECT :list_id, j.user_id, d.digest, 'list', CASE
    WHEN j.number = ANY(CAST(:complained AS int[])) THEN 'complaint'
    WHEN j.number = ANY(CAST(:bounced AS int[])) THEN 'bounce' ELSE 'import' END
FROM {JUDGED} AS j JOIN {STAGED_DIGESTS} AS d ON d.number = j.number AND d.is_current
WHERE j.verdict = 'left' ORDER BY j.user_id
ON CONFLICT DO NOTHING
"""  # noqa: S608
UNSUBSCRIBE = f"""
WITH leaving AS (
    SELECT m.place, m.status, CASE
        WHEN j.number = ANY(CAST(:complained AS int[])) THEN 'complained'
        WHEN j.number = ANY(CAST(:bounced AS int[])) THEN 'bounced'
        ELSE 'unsubscribed' END AS action
    FROM {JUDGED} AS j CROSS JOIN LATERAL (
        SELECT ctid AS place, status FROM subscriptions WHERE id = j.subscription_id OFFSET 0
    ) AS m
    WHERE j.verdict = 'left' AND m.status IN ('active', 'pending')
), gone AS (
    UPDATE subscriptions AS m SET status = 'unsubscribed', updated_at = clock_timestamp()
    FROM leaving WHERE m.ctid = leaving.place
    RETURNING m.list_id, m.user_id, leaving.action, leaving.status AS was, m.email_enabled
)
INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
    status_after, email_enabled_before, email_enabled_after)
SELECT list_id, user_id, action, 'import', :user_id, 'import', was, 'unsubscribed',
    email_enabled, email_enabled
FROM gone
"""  # noqa: S608
# Selects only the fields whose values the chunk changes, so that an undo doesn't affect unchanged
# fields.
_CHANGED_EXTRAS = f"""
LEFT JOIN {STAGED_EXTRAS} AS e ON e.number = j.number
CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(f.key, f.value) AS fields_after,
        jsonb_object_agg(f.key, coalesce(m.fields -> f.key, CAST('null' AS jsonb)))
            AS fields_before,
        nullif(ARRAY(SELECT unnest(e.tag_ids) EXCEPT SELECT unnest(m.tag_ids) ORDER BY 1), '{{}}')
            AS tags_added,
        CASE WHEN m.joined_at IS NULL THEN e.joined_at END AS joined_at_after
    FROM jsonb_each(e.fields) AS f
    WHERE (:update OR j.verdict = 'added' OR m.fields -> f.key IS NULL)
        AND m.fields -> f.key IS DISTINCT FROM f.value
) AS x
"""  # noqa: S608
_NEW_EXTRAS = """fields = m.fields || coalesce(c.fields_after, '{}'),
        tag_ids = CASE WHEN c.tags_added IS NULL THEN m.tag_ids ELSE
            ARRAY(SELECT unnest(m.tag_ids) UNION SELECT unnest(c.tags_added) ORDER BY 1) END,
        joined_at = coalesce(c.joined_at_after, m.joined_at),"""
_CHANGED_NAMES = """nullif(
            CASE WHEN c.tags_added IS NULL THEN CAST('{}' AS text[]) ELSE ARRAY['tags'] END
            || ARRAY(
                SELECT 'fields.' || f.key FROM jsonb_object_keys(c.fields_after) AS k (id)
                JOIN fields AS f ON f.id = CAST(k.id AS bigint) ORDER BY f.id
            ), '{}')"""


# If a new member is imported, sets the member's user id in earlier bounces of the same address. A
# bounce has no user id if, for example, the person with the address was erased.
CLAIM_BOUNCES = f"""
UPDATE bounces AS b SET user_id = j.user_id
FROM {JUDGED} AS j JOIN {STAGED_DIGESTS} AS d ON d.number = j.number
WHERE b.list_id = :list_id AND b.address_hmac = d.digest AND b.user_id IS NULL
    AND j.verdict = 'added'
"""  # noqa: S608
# If a new member is imported, applies the refusal of an erased person with the same address.
CLAIM_REFUSALS = f"""
INSERT INTO engagement_answers (list_id, user_id, address_hmac, is_allowed, created_at)
SELECT :list_id, j.user_id, (array_agg(a.address_hmac))[1], false, max(a.created_at)
FROM {JUDGED} AS j JOIN {STAGED_DIGESTS} AS d ON d.number = j.number
JOIN engagement_answers AS a
    ON a.list_id = :list_id AND a.user_id IS NULL AND a.address_hmac = d.digest
WHERE j.verdict = 'added' GROUP BY j.user_id
ON CONFLICT (list_id, user_id) DO NOTHING
"""  # noqa: S608


def build_changes_statement(*, has_extras: bool) -> str:
    columns = "fields_after, fields_before, tags_added, joined_at_before, joined_at_after,"
    values = "x.fields_after, x.fields_before, x.tags_added, m.joined_at, x.joined_at_after,"
    return f"""
INSERT INTO import_changes (import_id, subscription_id, activated, applied_at, status_before,
    name_before, name_after, type_before, type_after, paid_expiry_before, paid_expiry_after,
    {columns if has_extras else ""}
    import_id_before, imported_at_before, updated_at_before)
SELECT :import_id, m.id, j.verdict = 'added', now(), m.status,
    m.name, coalesce(nullif(j.name, ''), m.name),
    m.type, coalesce(j.tier, m.type),
    m.paid_expiry, {build_new_expiry("j")},
    {values if has_extras else ""}
    m.import_id, m.imported_at, m.updated_at
FROM {JUDGED} AS j CROSS JOIN LATERAL (
    SELECT * FROM subscriptions WHERE id = j.subscription_id OFFSET 0
) AS m
{_CHANGED_EXTRAS if has_extras else ""}
WHERE j.verdict = 'added' OR j.is_updated
"""  # noqa: S608


def build_update_statement(*, has_extras: bool) -> str:
    return f"""
WITH changed AS (
    UPDATE subscriptions AS m SET
        status = 'active',
        email_enabled = m.email_enabled AND j.wants_mail,
        name = c.name_after, type = c.type_after, paid_expiry = c.paid_expiry_after,
        {_NEW_EXTRAS if has_extras else ""}
        import_id = CASE WHEN c.activated THEN c.import_id ELSE m.import_id END,
        imported_at = CASE WHEN c.activated THEN c.applied_at ELSE m.imported_at END,
        updated_at = c.applied_at
    FROM {JUDGED} AS j CROSS JOIN LATERAL (
        SELECT * FROM import_changes
        WHERE import_id = :import_id AND subscription_id = j.subscription_id OFFSET 0
    ) AS c CROSS JOIN LATERAL (
        SELECT ctid AS place FROM subscriptions WHERE id = j.subscription_id OFFSET 0
    ) AS found
    WHERE m.ctid = found.place AND (j.verdict = 'added' OR j.is_updated)
    RETURNING m.list_id, m.user_id, c.activated, c.status_before, m.email_enabled,
        {_CHANGED_NAMES if has_extras else "CAST(NULL AS text[])"} AS names
)
INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
    status_after, email_enabled_before, email_enabled_after, changed)
SELECT list_id, user_id, CASE WHEN activated THEN 'imported' ELSE 'edited' END, 'import', :user_id,
    'import', status_before, 'active', email_enabled, email_enabled, names
FROM changed
"""  # noqa: S608


def build_insert_statement(*, has_extras: bool) -> str:
    extras = "coalesce(e.fields, '{}'), coalesce(e.tag_ids, '{}'), e.joined_at, e.origin,"
    return f"""
INSERT INTO subscriptions (list_id, user_id, status, type, paid_expiry, email_enabled, name, email,
    source, {"fields, tag_ids, joined_at, origin," if has_extras else ""}
    import_id, imported_at, created_at, updated_at)
SELECT :list_id, j.user_id, 'active', coalesce(j.tier, 'free'),
    CASE WHEN j.tier IS NOT NULL THEN j.paid_expiry END, j.wants_mail,
    nullif(j.name, ''), j.email, 'import', {extras if has_extras else ""}
    :import_id, now(), now(), now()
FROM {JUDGED} AS j
{f"LEFT JOIN {STAGED_EXTRAS} AS e ON e.number = j.number" if has_extras else ""}
WHERE j.verdict = 'added' AND j.subscription_id IS NULL ORDER BY j.number
"""  # noqa: S608
