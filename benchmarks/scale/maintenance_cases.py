"""Creates due work for each kind of maintenance, so that benchmarks can measure the maintenance.

Databases of different sizes get the same number of due rows.
"""

_DUE_ROWS = 200
# Maps each kind of maintenance to the SQL statement that creates due work before each round.
# ``None`` means that the benchmark creates no due work.
DUE: dict[str, str | None] = {
    "backup.create": None,
    "backup.journal": None,
    "credits.low_balance": (
        "UPDATE credit_accounts SET low_mail_due = true, low_below = balance WHERE user_id IN ("
        f"SELECT user_id FROM credit_accounts ORDER BY user_id LIMIT {_DUE_ROWS})"
    ),
    "credits.reverse": None,
    "credits.verify": None,
    "senders.apply": None,
    "senders.silence": None,
    "operator.mail": None,
    "segments.compare": None,
    "segments.upkeep": (
        "INSERT INTO segment_members (subscription_id, user_id, watch_id, entry, is_in)"
        f" SELECT n, n, 2000000000, 1, true FROM generate_series(1, {_DUE_ROWS}) AS n"
    ),
    "objects.remove": (
        "INSERT INTO object_removals (key)"
        " SELECT 'media/gone-' || n FROM generate_series(1, 20) AS n"
    ),
    "stores.check": None,
    "topups.poll": None,
    "webhooks.expire": None,
    "maintenance.fold_counts": (
        f"WITH oldest AS (SELECT id FROM lists ORDER BY id LIMIT {_DUE_ROWS}), days AS ("
        "   INSERT INTO member_day_deltas"
        "       (list_id, day, source, type, joined, gone, moved_in, moved_out)"
        "   SELECT id, current_date, 'challenge', 'free', 0, 0, 0, 0 FROM oldest)"
        " INSERT INTO subscriber_deltas (list_id, active) SELECT id, 0 FROM oldest"
    ),
    "maintenance.deleted_tags": (
        "INSERT INTO deleted_tags (list_id, id, created_at)"
        " SELECT list.id, 9000000000 + n, now() - interval '2 hours'"
        f" FROM (SELECT min(id) AS id FROM lists) AS list, generate_series(1, {_DUE_ROWS}) AS n"
        " ON CONFLICT DO NOTHING"
    ),
    "maintenance.engagement": (
        "WITH list AS (UPDATE lists SET updated_at = now()"
        "   WHERE id = (SELECT min(id) FROM lists) RETURNING id)"
        " INSERT INTO member_engagement (list_id, user_id, measured_since)"
        " SELECT list.id, 9000000000 + n, current_date"
        f" FROM list, generate_series(1, {_DUE_ROWS}) AS n"
        " ON CONFLICT DO NOTHING"
    ),
    "maintenance.purge": f"""
WITH person AS (SELECT min(id) AS id FROM users),
n AS (SELECT generate_series(1, {_DUE_ROWS}) AS n),
sessions AS (
    INSERT INTO user_sessions (user_id, secret_hmac, expires_at)
    SELECT id, sha256(gen_random_uuid()::text::bytea), now() - interval '1 hour' FROM person, n),
records AS (
    INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer, expires_at)
    SELECT id, 'route', gen_random_uuid(), sha256(''), '{{}}', now() - interval '1 hour'
    FROM person, n)
INSERT INTO jobs (kind, queue, status, created_at, finished_at)
SELECT 'members.add', 'bulk', 'succeeded', now() - interval '40 days', now() - interval '40 days'
FROM n
""",
    "maintenance.remind": None,
    "maintenance.shorten_ips": f"""
WITH n AS (SELECT generate_series(1, {_DUE_ROWS}) AS n),
claims AS (
    INSERT INTO consent_claims (import_id, subscription_id, how, claimed_by, ip, occurred_at)
    SELECT 10000000000 + (random() * 1e9)::bigint, n, 'form', 'file', '10.2.3.4',
        now() - interval '100 days'
    FROM n)
INSERT INTO consent_entries (list_id, user_id, how, ip, occurred_at)
SELECT id, 1, 'form', '10.2.3.4', now() - interval '100 days'
FROM n, (SELECT min(id) AS id FROM lists) AS list
""",
    # Let ``maintenance.strangers`` resume shortly before its end, with 50,000 people left, because
    # a full run would take too long.
    "maintenance.strangers": """
UPDATE maintenance SET bookmark = (SELECT id FROM users ORDER BY id DESC OFFSET 50000 LIMIT 1)
WHERE name = 'maintenance.strangers'
""",
    "maintenance.sweep_files": """
INSERT INTO imports (list_id, user_id, source, object_prefix, size, status, created_at, finished_at)
SELECT id, user_id, 'members', 'imports/due-' || gen_random_uuid(), 0, 'succeeded',
    now() - interval '9 days', now() - interval '9 days'
FROM lists, generate_series(1, 20) WHERE slug = 'list-1'
""",
    "maintenance.sweep_uploads": None,
}
