"""SQL statements that fill the tables of mailings, senders, origins, webhooks and API requests.

The statements create senders and webhook endpoints without secrets, because the benchmark neither
receives reports nor sends webhooks.
"""

STATEMENTS = {
    # A tenth of the mailings belong to the first owner's largest list.
    "mailings": """
INSERT INTO mailings (id, list_id, label, created_at, rows, delivered, hard_bounced, soft_bounced)
SELECT n, pg_temp.list_id(
        CASE WHEN n % 10 = 0 THEN 1 ELSE 2 + pg_temp.dice(n, 30, {lists} - 1) END),
    'Issue ' || n, pg_temp.ago(n, {mailings}, 390), 1000, 980, 10, 10
FROM generate_series(1, {mailings}::bigint) AS n
""",
    # Each row of ``mailing_marks`` records that a mail was delivered to a member, or bounced, in
    # the last four weeks. The rows expire after 30 days, so no row expires on the day of the
    # measurement.
    "mailing_marks": """
INSERT INTO mailing_marks (user_id, list_id, mailing_id, kind, created_at)
SELECT pg_temp.person_id(pg_temp.subscriber(n)), pg_temp.list_id(pg_temp.subscribed_list(n)),
    {mailings}, CASE WHEN n % 50 = 0 THEN 'soft_bounced' ELSE 'delivered' END,
    pg_temp.ago(n, {subscriptions}, 28)
FROM generate_series(1, {subscriptions}::bigint) AS n
""",
    # Each owner has one sender.
    "senders": """
INSERT INTO senders (user_id, name, provider, state, last_report_at, created_at, updated_at)
SELECT pg_temp.person_id(n), 'Sender ' || n, 'generic', 'working', '{anchor}',
    pg_temp.ago(n, {owners}, 390), '{anchor}'
FROM generate_series(1, {owners}::bigint) AS n ORDER BY n
""",
    # The age of each report is below the retention period of seven days.
    "sender_reports": """
INSERT INTO sender_reports (sender_id, received_at, occurred_at, kind, outcome, code, mailing_id,
    list_id, user_id)
SELECT 1 + n % {owners}, born, born, 'soft_bounce', 'applied', 'mailbox_full', {mailings},
    pg_temp.list_id(pg_temp.subscribed_list(n)), pg_temp.person_id(pg_temp.subscriber(n))
FROM (
    SELECT n, pg_temp.ago(n, {reports}, 6) AS born
    FROM generate_series(1, {reports}::bigint) AS n
) AS made ORDER BY n
""",
    "sender_counts": """
INSERT INTO sender_counts (sender_id, hour, outcome, count)
SELECT 1 + sender, date_trunc('hour', '{anchor}'::timestamptz) - hour * interval '1 hour',
    'applied', 10
FROM generate_series(0, {owners}::bigint - 1) AS sender, generate_series(1, 24 * 7) AS hour
""",
    "origin_days": """
INSERT INTO origin_days (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone)
SELECT list_id, (joined_at AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''), '',
    coalesce(origin ->> 'utm_campaign', ''), coalesce(origin ->> 'referrer', ''), count(*),
    count(*) FILTER (WHERE status <> 'active')
FROM subscriptions WHERE origin IS NOT NULL AND status <> 'pending' AND joined_at IS NOT NULL
GROUP BY 1, 2, 3, 4, 5, 6
""",
    "sign_up_views": """
INSERT INTO sign_up_views (list_id, day, seen)
SELECT pg_temp.list_id(1 + list), '{anchor}'::date - day, 100
FROM generate_series(0, {lists}::bigint - 1) AS list, generate_series(1, 390) AS day
WHERE list < 10 OR list % 10 = 0
""",
    "api_requests": """
INSERT INTO api_requests (key_id, occurred_at, id, method, route, status, request_id, milliseconds)
SELECT 1 + n % {api_keys}, pg_temp.ago(n, {requests}, 6), n, 'POST', '/auxilia/credits/consume',
    200, 'req-' || n, 5
FROM generate_series(1, {requests}::bigint) AS n
""",
    # Each owner has one paused webhook endpoint, so that workers deliver nothing.
    "webhook_endpoints": """
INSERT INTO webhook_endpoints (user_id, url, types, state, place, event_id, created_at)
SELECT pg_temp.person_id(n), 'https://hooks.example/' || n, ARRAY['subscription.created'],
    'paused', 1000, {feed_events}, pg_temp.ago(n, {owners}, 390)
FROM generate_series(1, {owners}::bigint) AS n ORDER BY n
""",
    "webhook_deliveries": """
INSERT INTO webhook_deliveries (endpoint_id, event_id, place, event_type, person_id, status,
    attempts, round_attempts, queued_at, due_at, last_attempt_at, delivered_at, status_code,
    milliseconds, answer, created_at)
SELECT 1 + n % {owners}, n, 1000, 'subscription.created', pg_temp.person_id(pg_temp.subscriber(n)),
    'delivered', 1, 1, born, born, born, born, 200, 20, 'OK', born
FROM (
    SELECT n, pg_temp.ago(n, {feed_events}, 28) AS born
    FROM generate_series(1, {feed_events}::bigint) AS n
) AS made ORDER BY n
""",
}
