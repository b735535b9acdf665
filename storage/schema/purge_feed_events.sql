-- Deletes old feed events for the application's role, which has no DELETE privilege on
-- `feed_events`. The events with the lowest ids are the oldest.
CREATE FUNCTION purge_feed_events(most integer, days integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH purged AS (
        DELETE FROM feed_events WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM feed_events ORDER BY id LIMIT most
        ))
            AND occurred_at < now() - interval '30 days'
            AND occurred_at < now() - make_interval(days => days)
        RETURNING 1
    )
    SELECT count(*) FROM purged
$$;
