"""SQL statements that fill the tables of jobs, files, credentials and account events.

No job and no other work becomes due in the weeks after `anchor`, so that workers don't change the
filled tables.
"""

STATEMENTS = {
    # In the filled database, every thousandth job waits for an unreachable mail server.
    "jobs": """
INSERT INTO jobs (kind, queue, user_id, on_behalf_of, subject_id, status, attempt, run_at,
    send_after, sends, request_id, created_at, started_at, finished_at)
SELECT CASE WHEN n % 1000 = 0 OR own > 1 THEN 'subscription.mail_confirmation'
        WHEN own = 0 THEN 'members.add' ELSE 'attachment.process' END,
    CASE WHEN n % 1000 = 0 OR own > 1 THEN 'mail' WHEN own = 0 THEN 'bulk' ELSE 'media' END,
    CASE WHEN n % 1000 > 0 AND own <= 1 THEN owner END,
    owner, 1 + pg_temp.dice(n, 12, {imports}),
    CASE WHEN n % 1000 = 0 THEN 'queued' ELSE 'succeeded' END, 1,
    CASE WHEN n % 1000 = 0 THEN later ELSE born END,
    CASE WHEN n % 1000 = 0 THEN later ELSE born END,
    1, 'req-' || n, born, born, CASE WHEN n % 1000 > 0 THEN born + interval '1 second' END
FROM (
    SELECT n, pg_temp.ago(n, {jobs}, 28) AS born, pg_temp.dice(n, 10, 10) AS own,
        '{anchor}'::timestamptz + interval '60 days' AS later,
        pg_temp.person_id(CASE WHEN n % 10 = 0 THEN 1
            ELSE 1 + pg_temp.dice(n, 11, {owners}) END) AS owner
    FROM generate_series(1, {jobs}::bigint) AS n
) AS made ORDER BY n
""",
    "idempotency_records": """
INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer, expires_at)
SELECT pg_temp.person_id(1 + n % {owners}), 'POST /auxilia/credits/consume', 'key-' || n,
    sha256(n::text::bytea), jsonb_build_object('data', jsonb_build_object('id', n)),
    '{anchor}'::timestamptz + interval '60 days'
FROM generate_series(1, {records}::bigint) AS n
""",
    "attachments": """
INSERT INTO attachments (user_id, hash_id, status, encrypted, mime_type, filename, size, checksum,
    width, height, frames, blurhash, original_filename, original_mime_type, original_size,
    original_checksum, created_at, updated_at)
SELECT pg_temp.person_id(CASE WHEN n % 10 = 0 THEN 1 ELSE 1 + pg_temp.dice(n, 20, {owners}) END),
    hash_id, 2, false, 'image/webp', hash_id || '.webp', 20000, digest || digest, 800, 600, 1,
    'LEHV6nWB2yk8pyo0adR*.7kCMdnj', 'picture.png', 'image/png', 40000, digest || digest, born, born
FROM (
    SELECT n, pg_temp.ago(n, {attachments}, 700) AS born, md5(n::text) AS digest,
        'f' || lpad(to_hex(n), 11, '0') AS hash_id
    FROM generate_series(1, {attachments}::bigint) AS n
) AS made ORDER BY n
""",
    "storage_uses": """
INSERT INTO storage_uses (user_id, bytes)
SELECT user_id, sum(bytes) FROM (
    SELECT user_id, CASE status WHEN 2 THEN size WHEN 3 THEN 0 ELSE original_size END AS bytes
    FROM attachments
    UNION ALL SELECT user_id, size + chunk_bytes FROM imports WHERE finished_at IS NULL
    UNION ALL SELECT user_id, size FROM exports WHERE kind = 'members' AND files_removed_at IS NULL
) AS held GROUP BY user_id
""",
    "events": """
INSERT INTO events (user_id, type, occurred_at, ip, user_agent)
SELECT pg_temp.person_id(CASE WHEN n % 10 = 0 THEN 1 ELSE 1 + pg_temp.dice(n, 21, {people}) END),
    CASE WHEN n % 3 = 0 THEN 'login.failed' ELSE 'login.succeeded' END,
    pg_temp.ago(n, {events}, 280), '10.2.3.4', 'Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0'
FROM generate_series(1, {events}::bigint) AS n
""",
    # In the benchmark's database, every tenth feed event belongs to the first owner's largest list.
    # The events get low feed positions, as if their transactions had ended long ago.
    "feed_events": """
INSERT INTO feed_events (place, user_id, type, list_id, subject_id, data, occurred_at)
SELECT 1 + n * 500 / {feed_events},
    pg_temp.person_id(CASE WHEN n % 10 = 0 THEN 1 ELSE 1 + pg_temp.dice(n, 25, {owners}) END),
    CASE WHEN n % 1000 = 0 THEN 'import.ended' WHEN n % 3 = 0 THEN 'subscription.left'
        WHEN n % 7 = 0 THEN 'attachment.ready' ELSE 'subscription.created' END,
    CASE WHEN n % 7 > 0 OR n % 3 = 0 THEN pg_temp.list_id(
        CASE WHEN n % 10 = 0 THEN 1 ELSE 1 + pg_temp.dice(n, 26, {lists}) END) END,
    n, '{{}}', pg_temp.ago(n, {feed_events}, 30)
FROM generate_series(1, {feed_events}::bigint) AS n
""",
    "user_sessions": """
INSERT INTO user_sessions (user_id, secret_hmac, browser, created_at, expires_at)
SELECT pg_temp.person_id(1 + pg_temp.dice(n, 22, {people})), sha256(('session' || n)::bytea),
    'Firefox on Linux', pg_temp.ago(n, {sessions}, 25), '{anchor}'::timestamptz + interval '60 days'
FROM generate_series(1, {sessions}::bigint) AS n
""",
    "api_keys": """
INSERT INTO api_keys (user_id, name, secret_hmac, last_four, created_at)
SELECT pg_temp.person_id(1 + n % {owners}), 'Key ' || n, sha256(('key' || n)::bytea), 'abcd',
    pg_temp.ago(n, {api_keys}, 700)
FROM generate_series(1, {api_keys}::bigint) AS n
""",
    "account_mails": """
INSERT INTO account_mails (kind, email, user_id, created_at, admitted_at, sent_at)
SELECT 'key_created', pg_temp.email(person), pg_temp.person_id(person), later, later, later
FROM (
    SELECT 1 + pg_temp.dice(n, 23, {people}) AS person,
        '{anchor}'::timestamptz + interval '60 days' AS later
    FROM generate_series(1, {mails}::bigint) AS n
) AS made
""",
    "mailed_links": """
INSERT INTO mailed_links (purpose, user_id, list_id, secret_hmac, expires_at)
SELECT 'confirm', pg_temp.person_id(pg_temp.subscriber(n)),
    pg_temp.list_id(pg_temp.subscribed_list(n)), sha256(('link' || n)::bytea),
    '{anchor}'::timestamptz + interval '60 days'
FROM generate_series({subscriptions} - {links}, {subscriptions}::bigint) AS n
""",
    "mail_counts": """
INSERT INTO mail_counts (digest, mails, ends_at)
SELECT sha256(('mails' || n)::bytea), 1, '{anchor}'::timestamptz + interval '60 days'
FROM generate_series(1, {small}::bigint) AS n
""",
    "login_attempts": """
INSERT INTO login_attempts (subject, attempts, paused_until, tried_at)
SELECT sha256(('attempt' || n)::bytea), 1, '{anchor}'::timestamptz,
    '{anchor}'::timestamptz + interval '60 days'
FROM generate_series(1, {small}::bigint) AS n
""",
    "recovery_codes": """
INSERT INTO recovery_codes (user_id, code_hmac)
SELECT pg_temp.person_id(2 + n % {owners}), sha256(('code' || n)::bytea)
FROM generate_series(1, {small}::bigint) AS n
""",
    "oauth_clients": """
INSERT INTO oauth_clients (client_id, name, redirect_uris, scopes)
SELECT 'filled-' || n, 'Program ' || n, ARRAY['https://client.example/callback'],
    ARRAY['credit.read']
FROM generate_series(1, {clients}) AS n
""",
    "oauth_grants": """
INSERT INTO oauth_grants (user_id, client_id, scopes, created_at, updated_at)
SELECT pg_temp.person_id(1 + n / {clients}), 'filled-' || 1 + n % {clients}, ARRAY['credit.read'],
    '{anchor}', '{anchor}'
FROM generate_series(0, {grants} - 1) AS n
""",
    "oauth_tokens": """
INSERT INTO oauth_tokens (kind, grant_id, family, secret_hmac, scopes, expires_at)
SELECT 'access', 1 + n % {grants}, n, sha256(('token' || n)::bytea), ARRAY['credit.read'],
    '{anchor}'::timestamptz + interval '60 days'
FROM generate_series(1, {tokens}) AS n
""",
    # Set the bookmark of `maintenance.shorten_ips` so that all old IP addresses count as shortened.
    "maintenance": """
INSERT INTO maintenance (name, every_seconds, bookmark)
SELECT 'maintenance.shorten_ips', 3600, max(id) FROM subscription_events
WHERE created_at < '{anchor}'::timestamptz - interval '80 days'
""",
}
