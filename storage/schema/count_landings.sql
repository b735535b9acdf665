-- Records how a statement changes the number of active members who signed up on each page. The
-- function `count_origins` explains the rules, which are the same.
CREATE FUNCTION count_landings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO landing_day_deltas (list_id, day, landing, joined, gone, imported)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, origin ->> 'landing', count(*), 0,
            count(*) FILTER (WHERE source = 'import')
        FROM after_it WHERE status = 'active' AND origin ->> 'landing' IS NOT NULL GROUP BY 1, 2, 3;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO landing_day_deltas (list_id, day, landing, joined, gone)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, origin ->> 'landing', 0, count(*)
        FROM before_it WHERE status = 'active' AND origin ->> 'landing' IS NOT NULL
        GROUP BY 1, 2, 3;
    ELSIF EXISTS (SELECT FROM after_it WHERE origin ->> 'landing' IS NOT NULL)
        OR EXISTS (SELECT FROM before_it WHERE origin ->> 'landing' IS NOT NULL)
    THEN
        INSERT INTO landing_day_deltas (list_id, day, landing, joined, gone, imported)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, landing,
            count(*) FILTER (WHERE is_active), count(*) FILTER (WHERE was_active),
            count(*) FILTER (WHERE is_active AND is_imported)
        FROM (
            SELECT list_id, bool_or(is_after AND status = 'active') AS is_active,
                bool_or(NOT is_after AND status = 'active') AS was_active,
                bool_or(is_after AND source = 'import') AS is_imported,
                (array_agg(origin ->> 'landing' ORDER BY is_after DESC)
                    FILTER (WHERE origin IS NOT NULL))[1] AS landing
            FROM (
                SELECT id, list_id, status, source, origin, true AS is_after FROM after_it
                UNION ALL
                SELECT id, list_id, status, source, origin, false FROM before_it
            ) AS either
            GROUP BY id, list_id
        ) AS changed
        WHERE landing IS NOT NULL AND is_active <> was_active
        GROUP BY 1, 2, 3;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_landings_delete AFTER DELETE ON subscriptions
    REFERENCING OLD TABLE AS before_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_landings();

CREATE TRIGGER subscriptions_landings_insert AFTER INSERT ON subscriptions
    REFERENCING NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_landings();

CREATE TRIGGER subscriptions_landings_update AFTER UPDATE ON subscriptions
    REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_landings();
