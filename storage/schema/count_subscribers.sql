-- Records how a statement changes the number of active subscribers and the daily statistics of each
-- list. The changes are inserted as new rows, so that no transaction waits for a counter row. An
-- active member who changes to another tier counts as moved. Changes that affect neither the status
-- nor the tier aren't recorded. The query has no join, because its plan is cached and must suit one
-- row and ten thousand rows.
CREATE FUNCTION count_subscribers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type, count(*), 0, 0, 0
            FROM after_it WHERE status = 'active' GROUP BY list_id, source, type
            RETURNING list_id, joined
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, sum(joined) FROM noted GROUP BY list_id;
    ELSIF TG_OP = 'DELETE' THEN
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type, 0, count(*), 0, 0
            FROM before_it WHERE status = 'active' GROUP BY list_id, source, type
            RETURNING list_id, gone
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, -sum(gone) FROM noted GROUP BY list_id;
    ELSE
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type,
                count(*) FILTER (WHERE is_after AND is_alone),
                count(*) FILTER (WHERE NOT is_after AND is_alone),
                count(*) FILTER (WHERE is_after AND NOT is_alone),
                count(*) FILTER (WHERE NOT is_after AND NOT is_alone)
            FROM (
                SELECT list_id, source, type, is_after, count(*) OVER same = 1 AS is_alone,
                    min(type) OVER same <> max(type) OVER same AS has_moved
                FROM (
                    SELECT id, list_id, source, type, true AS is_after
                    FROM after_it WHERE status = 'active'
                    UNION ALL
                    SELECT id, list_id, source, type, false
                    FROM before_it WHERE status = 'active'
                ) AS either
                WINDOW same AS (PARTITION BY id)
            ) AS changed
            WHERE is_alone OR has_moved
            GROUP BY list_id, source, type
            RETURNING list_id, joined - gone AS difference
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, sum(difference) FROM noted
        GROUP BY list_id HAVING sum(difference) <> 0;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_count_delete AFTER DELETE ON subscriptions
    REFERENCING OLD TABLE AS before_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_subscribers();

CREATE TRIGGER subscriptions_count_insert AFTER INSERT ON subscriptions
    REFERENCING NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_subscribers();

CREATE TRIGGER subscriptions_count_update AFTER UPDATE ON subscriptions
    REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_subscribers();
