-- Records how a statement changes the number of active members with each origin. Members without an
-- origin aren't recorded. If a statement adds a member and sets an origin, the change is recorded
-- for the new origin. If an erasure clears the origin of a member, the change is recorded for the
-- former origin. The query has no join, because its cached plan must be fast for one row and for
-- ten thousand rows.
CREATE FUNCTION count_origins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO origin_day_deltas
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone, imported)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''),
            coalesce(origin ->> 'utm_medium', ''), coalesce(origin ->> 'utm_campaign', ''),
            coalesce(origin ->> 'referrer', ''), count(*), 0,
            count(*) FILTER (WHERE source = 'import')
        FROM after_it WHERE status = 'active' AND origin IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO origin_day_deltas
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''),
            coalesce(origin ->> 'utm_medium', ''), coalesce(origin ->> 'utm_campaign', ''),
            coalesce(origin ->> 'referrer', ''), 0, count(*)
        FROM before_it WHERE status = 'active' AND origin IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6;
    ELSIF EXISTS (SELECT FROM after_it WHERE origin IS NOT NULL)
        OR EXISTS (SELECT FROM before_it WHERE origin IS NOT NULL)
    THEN
        INSERT INTO origin_day_deltas
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone, imported)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''),
            coalesce(origin ->> 'utm_medium', ''), coalesce(origin ->> 'utm_campaign', ''),
            coalesce(origin ->> 'referrer', ''),
            count(*) FILTER (WHERE is_active), count(*) FILTER (WHERE was_active),
            count(*) FILTER (WHERE is_active AND is_imported)
        FROM (
            SELECT list_id, bool_or(is_after AND status = 'active') AS is_active,
                bool_or(NOT is_after AND status = 'active') AS was_active,
                bool_or(is_after AND source = 'import') AS is_imported,
                (array_agg(origin ORDER BY is_after DESC) FILTER (WHERE origin IS NOT NULL))[1]
                    AS origin
            FROM (
                SELECT id, list_id, status, source, origin, true AS is_after FROM after_it
                UNION ALL
                SELECT id, list_id, status, source, origin, false FROM before_it
            ) AS either
            GROUP BY id, list_id
        ) AS changed
        WHERE origin IS NOT NULL AND is_active <> was_active
        GROUP BY 1, 2, 3, 4, 5, 6;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_origins_delete AFTER DELETE ON subscriptions
    REFERENCING OLD TABLE AS before_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_origins();

CREATE TRIGGER subscriptions_origins_insert AFTER INSERT ON subscriptions
    REFERENCING NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_origins();

CREATE TRIGGER subscriptions_origins_update AFTER UPDATE ON subscriptions
    REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_origins();
