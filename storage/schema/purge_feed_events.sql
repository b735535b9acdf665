-- The one way to delete events of the feed, for a role that may not delete rows of the table itself.
-- Ids rise with time, so the oldest events are the first ones.
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
