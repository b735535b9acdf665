"""SQL statements that fill the tables of people, lists and subscriptions.

Each row depends only on its row number and the random seed. An SQL statement can compute a row's id
from its row number without reading the row's table. The oldest rows are dated 700 days before
`anchor`.
"""

# The SQL functions exist only in the database session, because their schema is `pg_temp`. Postgres
# inlines the SQL functions into the statements that call them.
FUNCTIONS = """
CREATE FUNCTION pg_temp.dice(n bigint, salt int, sides bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (hashint8extended(n, {seed} * 1000 + salt) & 9223372036854775807) % sides
$$;
-- Multiplication by an odd factor maps each number to a different id below 2^53.
CREATE FUNCTION pg_temp.person_id(n bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ((n + {seed} * 1000) * 98765432197) & 9007199254740991
$$;
CREATE FUNCTION pg_temp.list_id(n bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ((n + {seed} * 1000) * 1234567890123) & 9007199254740991
$$;
CREATE FUNCTION pg_temp.order_id(n bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ((n + {seed} * 1000) * 34567890121) & 9007199254740991
$$;
CREATE FUNCTION pg_temp.email(n bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('{{ada,ben,chloe,dmitri,elena,farid,grace,hugo}}'::text[])[1 + n % 8] || '.'
        || ('{{adams,brown,castro,dubois,evans,fischer,garcia}}'::text[])[1 + n % 7] || n || '@'
        || ('{{example.com,example.org,example.net}}'::text[])[1 + n % 3]
$$;
-- `subscriber` and `subscribed_list` return the person and the list of a subscription. The first
-- list contains half of all subscriptions. The other lists have very different sizes.
CREATE FUNCTION pg_temp.subscriber(n bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 1 + n * {stride} % {people}
$$;
CREATE FUNCTION pg_temp.subscribed_list(n bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN n <= {half} THEN 1 ELSE least({lists}, 2 + floor(
        ({lists} - 1) * power(pg_temp.dice(n, 1, 1000000) / 1000000.0::float8, 3)))::bigint END
$$;
CREATE FUNCTION pg_temp.ago(n bigint, of bigint, days int) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '{anchor}'::timestamptz - interval '1 hour'
        - (of - n)::float8 / of * (days * interval '1 day')
$$
"""

# An SQL expression for the HMAC-SHA256 of an e-mail address.
_HMAC = (
    "sha256('\\x{outer_pad}'::bytea || sha256('\\x{inner_pad}'::bytea"
    " || convert_to(s.email, 'UTF8')))"
)

STATEMENTS = {
    "users": """
INSERT INTO users (id, email, name, password_hash, plan, created_at, updated_at)
SELECT pg_temp.person_id(n), pg_temp.email(n), CASE WHEN n % 3 = 0 THEN 'Person ' || n END,
    CASE WHEN n <= {owners} THEN '{password_hash}' END,
    CASE WHEN n <= {owners} THEN 'paid' ELSE 'free' END,
    pg_temp.ago(n, {people}, 700), pg_temp.ago(n, {people}, 700)
FROM generate_series(1, {people}::bigint) AS n ORDER BY 1
""",
    "lists": """
INSERT INTO lists (id, user_id, slug, title, consent_wording_version, engagement, created_at,
    updated_at)
SELECT pg_temp.list_id(n), pg_temp.person_id(1 + (n - 1) / 2), 'list-' || n, 'List ' || n, 1, 'all',
    pg_temp.ago(n, {lists}, 700), pg_temp.ago(n, {lists}, 700)
FROM generate_series(1, {lists}::bigint) AS n
""",
    "subscriptions": """
INSERT INTO subscriptions (list_id, user_id, status, type, paid_expiry, email_enabled, name, email,
    source, import_id, imported_at, created_at, updated_at, joined_at, tag_ids, fields, origin)
SELECT pg_temp.list_id(list), pg_temp.person_id(person), status,
    CASE WHEN n % 20 > 0 THEN 'free' WHEN n % 60 = 0 THEN 'gold' ELSE 'silver' END,
    CASE WHEN n % 20 = 0 THEN '{anchor}'::timestamptz + (n % 360 - 59) * interval '1 day' END,
    pg_temp.dice(n, 4, 50) > 0, 'Person ' || person, pg_temp.email(person),
    CASE WHEN is_imported THEN 'import' ELSE 'challenge' END,
    CASE WHEN is_imported THEN 2 * (1 + (n - 1) * {own_imports} / {half}) - 1 END,
    CASE WHEN is_imported THEN born END, born, born,
    CASE WHEN is_imported AND n % 5 = 0 THEN born - interval '1 year' END,
    CASE WHEN is_rare THEN ARRAY[3 * list] WHEN n % 3 = 0 THEN ARRAY[3 * list - 2] ELSE '{{}}' END,
    CASE WHEN is_rare OR n % 4 = 0 THEN jsonb_build_object(
        1 + (list - 1) / 2 * 2, CASE WHEN is_rare THEN 'Utqiagvik' ELSE
            ('{{Paris,Rome,Berlin,Madrid,Lisbon,Vienna,Oslo,Riga}}'::text[])[1 + n / 4 % 8] END,
        2 + (list - 1) / 2 * 2, n % 100) ELSE '{{}}' END,
    CASE WHEN is_rare OR n % 2 = 0 THEN jsonb_build_object(
        'utm_source', CASE WHEN is_rare THEN 'utqiagvik' ELSE 'source-' || n / 2 % 8 END,
        'referrer', 'www.site-' || n % 23 || '.example') ||
        CASE WHEN is_rare THEN '{{"utm_campaign": "north"}}'::jsonb ELSE '{{}}' END END
FROM (
    SELECT n, pg_temp.subscriber(n) AS person, status, pg_temp.subscribed_list(n) AS list,
        -- Twenty members of the largest list are rare, at any size of the database.
        n <= {half} AND n % greatest({half} / 20, 1) = 0 AS is_rare,
        pg_temp.ago(n, {subscriptions}, CASE status WHEN 'pending' THEN 25 ELSE 700 END) AS born,
        n <= {half} AND n % 4 > 0 AND status <> 'pending' AS is_imported
    FROM generate_series(1, {subscriptions}::bigint) AS n CROSS JOIN LATERAL (SELECT CASE
        WHEN pg_temp.dice(n, 2, 100) < 90 THEN 'active'
        WHEN pg_temp.dice(n, 2, 100) < 96 THEN 'unsubscribed'
        WHEN pg_temp.dice(n, 2, 100) < 97 THEN 'removed' ELSE 'pending' END AS status) AS thrown
) AS made ORDER BY n
""",
    # In the benchmark's database, each owner has two member fields.
    "fields": """
INSERT INTO fields (user_id, key, label, type)
SELECT pg_temp.person_id((n + 1) / 2), ('{{visits,city}}'::text[])[1 + n % 2],
    ('{{Visits,City}}'::text[])[1 + n % 2], ('{{number,text}}'::text[])[1 + n % 2]
FROM generate_series(1, 2 * {owners}::bigint) AS n ORDER BY n
""",
    # In the benchmark's database, each list has three tags.
    "tags": """
INSERT INTO tags (list_id, name, folded)
SELECT pg_temp.list_id((n + 2) / 3), ('{{rare,vip,spare}}'::text[])[1 + n % 3],
    ('{{rare,vip,spare}}'::text[])[1 + n % 3]
FROM generate_series(1, 3 * {lists}::bigint) AS n ORDER BY n
""",
    "subscription_events": """
INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
    status_after, email_enabled_after, ip, created_at)
SELECT pg_temp.list_id(pg_temp.subscribed_list(n)), pg_temp.person_id(pg_temp.subscriber(n)),
    CASE WHEN is_first THEN 'subscribed' WHEN e % 600 = 0 THEN 'complained'
        WHEN e % 30 = 0 THEN 'unsubscribed' ELSE 'email_enabled' END,
    CASE WHEN is_first AND n <= {half} THEN 'import' ELSE 'user' END,
    pg_temp.person_id(CASE WHEN is_first AND n <= {half} THEN 1 ELSE pg_temp.subscriber(n) END),
    CASE WHEN is_first THEN 'challenge' ELSE 'login' END,
    CASE WHEN e % 30 = 0 THEN 'active' END,
    CASE WHEN e % 30 = 0 THEN 'unsubscribed' ELSE 'active' END, true,
    CASE WHEN born < '{anchor}'::timestamptz - interval '80 days' THEN '10.2.3.0/24'
        ELSE '10.2.3.' || e % 250 END, born
FROM (
    SELECT e, e % 3 > 0 AS is_first, pg_temp.ago(e, {subscription_events}, 700) AS born,
        CASE WHEN e % 3 > 0 THEN least(e - e / 3, {subscriptions})
            ELSE 1 + pg_temp.dice(e, 6, {subscriptions}) END AS n
    FROM generate_series(1, {subscription_events}::bigint) AS e
) AS made ORDER BY e
""",
    # In the benchmark's database, only members who weren't imported have consent entries. IP
    # addresses in old consent entries are already shortened.
    "consent_entries": """
INSERT INTO consent_entries (list_id, user_id, how, occurred_at, ip, url, browser, wording_version)
SELECT pg_temp.list_id(pg_temp.subscribed_list(n)), pg_temp.person_id(pg_temp.subscriber(n)),
    CASE WHEN n % 2 = 0 THEN 'form' ELSE 'confirmation' END, born,
    CASE WHEN born < '{anchor}'::timestamptz - interval '80 days' THEN '10.2.3.0/24'
        ELSE '10.2.3.' || n % 250 END, 'https://www.example.com/join', 'Firefox on Linux', 1
FROM (
    SELECT n, pg_temp.ago(n, {subscriptions}, 700) AS born
    FROM generate_series({half} + 1, {subscriptions}::bigint) AS n
) AS made ORDER BY n
""",
    # In the benchmark's database, half of the imported members have a consent claim.
    "consent_claims": """
INSERT INTO consent_claims (import_id, subscription_id, how, occurred_at, ip, claimed_by)
SELECT 2 * (1 + (n - 1) * {own_imports} / {half}) - 1, n, 'form',
    pg_temp.ago(n, {subscriptions}, 700) - interval '100 days', '10.2.3.0/24', 'Mailchimp'
FROM generate_series(1, {half}::bigint, 2) AS n
""",
    "consent_wordings": """
INSERT INTO consent_wordings (list_id, version, wording)
SELECT pg_temp.list_id(n), 1, 'I want to get List ' || n || '.'
FROM generate_series(1, {lists}::bigint) AS n
""",
    "subscriber_counts": """
INSERT INTO subscriber_counts (list_id, active)
SELECT list_id, count(*) FROM subscriptions WHERE status = 'active' GROUP BY list_id
""",
    "member_days": """
INSERT INTO member_days (list_id, day, source, type, joined, gone, moved_in, moved_out)
SELECT list_id, (created_at AT TIME ZONE 'UTC')::date, source, type, count(*),
    count(*) FILTER (WHERE status <> 'active'), 0, 0
FROM subscriptions WHERE status <> 'pending' GROUP BY 1, 2, 3, 4
""",
    "opt_outs": f"""
INSERT INTO opt_outs (list_id, user_id, address_hmac, kind, source, created_at)
SELECT s.list_id, s.user_id, {_HMAC}, k.kind, 'one-click', s.created_at
FROM subscriptions AS s CROSS JOIN LATERAL (VALUES
    ('list', s.status = 'unsubscribed'), ('email', NOT s.email_enabled)) AS k (kind, is_set)
WHERE k.is_set
""",
    # Add a hard bounce for every second active member who gets no mail from a list, and a soft
    # bounce for twenty members of the largest list.
    "bounces": f"""
INSERT INTO bounces (list_id, address_hmac, mailing_id, user_id, is_hard, status, mailing_at,
    bounced_at, stopped_at, created_at)
SELECT s.list_id, {_HMAC}, 1, s.user_id, NOT s.email_enabled, '5.1.1', born, born,
    CASE WHEN NOT s.email_enabled THEN born END, born
FROM subscriptions AS s
CROSS JOIN LATERAL (
    SELECT '{{anchor}}'::timestamptz - s.id % 150 * interval '1 day' AS born
) AS made
WHERE s.status = 'active' AND CASE WHEN s.email_enabled
    THEN s.id <= {{half}} AND s.id % greatest({{half}} / 20, 1) = 0 ELSE s.id % 2 = 0 END
""",
    # Add an answer for every fiftieth active member. Half of the answers are yes.
    "engagement_answers": f"""
INSERT INTO engagement_answers (list_id, user_id, address_hmac, is_allowed, created_at)
SELECT s.list_id, s.user_id, CASE WHEN s.id % 100 = 57 THEN {_HMAC} END, s.id % 100 = 7,
    s.created_at
FROM subscriptions AS s WHERE s.status = 'active' AND s.id % 50 = 7
""",
    # Twenty members of the largest list clicked a hundred times, at any size of the database.
    "member_engagement": """
INSERT INTO member_engagement (list_id, user_id, measured_since, delivered, opens, machine_opens,
    clicks, last_delivered, last_opened, last_machine_opened, last_clicked)
SELECT list_id, user_id, day - 200, 100, id % 20, id % 3,
    CASE WHEN id <= {half} AND id % greatest({half} / 20, 1) = 0 THEN 100 ELSE id % 5 END,
    day - (id % 28)::int, CASE WHEN id % 20 > 0 THEN day - (id % 150)::int END,
    CASE WHEN id % 3 > 0 THEN day - (id % 150)::int END,
    CASE WHEN id % 5 > 0 THEN day - (id % 150)::int END
FROM subscriptions CROSS JOIN (SELECT '{anchor}'::date AS day) AS today
WHERE status = 'active' AND id % 100 <> 57
""",
    # In the benchmark's database, half of the imports belong to the largest list. Only the newest
    # imports have files, because Pressroom deletes old import files.
    "imports": """
INSERT INTO imports (list_id, user_id, source, object_prefix, size, status, chunks, is_split,
    applied, received, added, already, files_removed_at, created_at, finished_at)
OVERRIDING SYSTEM VALUE
SELECT pg_temp.list_id(list), pg_temp.person_id(1 + (list - 1) / 2), 'members',
    'imports/filled-' || n, 4000, 'succeeded', 1, true, 1, greatest(f.added, 100),
    coalesce(f.added, 0), greatest(100 - f.added, 0),
    CASE WHEN n * 1000 < {imports} * 991::bigint THEN born + interval '7 days' END, born, born
FROM (
    SELECT n, pg_temp.ago(n, {imports}, 700) AS born, CASE WHEN n % 2 = 1 THEN 1
        ELSE 2 + pg_temp.dice(n, 7, {lists} - 1) END AS list
    FROM generate_series(1, {imports}::bigint) AS n
) AS made
LEFT JOIN (SELECT import_id, count(*) AS added FROM subscriptions
    WHERE import_id IS NOT NULL GROUP BY import_id) AS f ON f.import_id = n
ORDER BY n
""",
    "import_chunks": """
INSERT INTO import_chunks (import_id, number, not_added)
SELECT id, 0, decode(repeat(md5(id::text), 30), 'hex') FROM imports WHERE files_removed_at IS NULL
""",
    "import_changes": """
INSERT INTO import_changes (import_id, subscription_id, activated, applied_at, status_before,
    name_before, name_after, type_before, type_after, updated_at_before)
SELECT 2 * {own_imports} - 1 - 2 * (n % (1 + {own_imports} / 10)), {half} - n, false,
    pg_temp.ago({import_changes} - n, {import_changes}, 80), 'active', 'Before', 'Person', 'free',
    'free', pg_temp.ago(n, {import_changes}, 80)
FROM generate_series(0, least({import_changes}, {half}) - 1::bigint) AS n
""",
    "segments": """
INSERT INTO segments (list_id, name, folded, filter)
SELECT pg_temp.list_id((n + 1) / 2), 'Segment ' || n, 'segment ' || n,
    '{{"field": "tag", "is": "vip"}}'
FROM generate_series(1, 2 * {lists}::bigint) AS n ORDER BY n
""",
    # In the benchmark's database, each bulk action changed at most a hundred members of the largest
    # list.
    "bulk_actions": """
INSERT INTO bulk_actions (list_id, user_id, filter, action, status, seen, matched, changed,
    created_at, finished_at)
SELECT pg_temp.list_id(1), pg_temp.person_id(1), '{{"field": "tag", "is": "vip"}}', 'remove',
    'succeeded', 100, 100, 100, pg_temp.ago(n, {small}, 300), pg_temp.ago(n, {small}, 300)
FROM generate_series(1, {small}::bigint) AS n ORDER BY n
""",
    "bulk_changes": """
INSERT INTO bulk_changes (bulk_id, subscription_id, applied_at, updated_at_before, status_before,
    type_before)
SELECT 1 + n * {small} / {import_changes}, {half} - n % {half},
    pg_temp.ago(n, {import_changes}, 80), pg_temp.ago(n, {import_changes}, 300), 'active', 'free'
FROM generate_series(0, {import_changes} - 1::bigint) AS n
ON CONFLICT DO NOTHING
""",
    "exports": """
INSERT INTO exports (list_id, user_id, kind, object_prefix, size, rows, files_removed_at,
    created_at, finished_at)
SELECT pg_temp.list_id(list), pg_temp.person_id(1 + (list - 1) / 2), 'members',
    'exports/filled-' || n, 4000, 100, born + interval '7 days', born, born
FROM (
    SELECT n, pg_temp.ago(n, {exports}, 700) AS born, CASE WHEN n % 10 = 0 THEN 1
        ELSE 2 + pg_temp.dice(n, 8, {lists} - 1) END AS list
    FROM generate_series(1, {exports}::bigint) AS n
) AS made ORDER BY n
""",
    "denied_entries": """
INSERT INTO denied_entries (user_id, entry)
SELECT pg_temp.person_id(1 + n % {owners}), 'denied' || n || '@example.com'
FROM generate_series(1, {small}::bigint) AS n
""",
    "former_addresses": """
INSERT INTO former_addresses (email, user_id, left_at)
SELECT 'former.' || pg_temp.email(n), pg_temp.person_id(n), '{anchor}'
FROM generate_series(1, {small}::bigint) AS n
""",
    "list_reports": """
INSERT INTO list_reports (list_id, user_id, created_at)
SELECT pg_temp.list_id(pg_temp.subscribed_list(n * 30)),
    pg_temp.person_id(pg_temp.subscriber(n * 30)), pg_temp.ago(n, {small}, 280)
FROM generate_series(1, {small}::bigint) AS n
""",
}
