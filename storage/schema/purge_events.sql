-- Deletes old events for the application's role, which has no DELETE privilege on `events`. The
-- trigger `events_stay` prevents the deletion of events in their first year.
CREATE FUNCTION purge_events(most integer, days integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH purged AS (
        DELETE FROM events WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM events
            WHERE occurred_at < now() - interval '1 year'
                AND occurred_at < now() - make_interval(days => days)
            ORDER BY occurred_at LIMIT most FOR UPDATE SKIP LOCKED
        )) RETURNING 1
    )
    SELECT count(*) FROM purged
$$;
