-- Raises the feed offset and the next event id after a restore, so that new events exceed all
-- former positions and ids. A new Postgres cluster starts with low transaction numbers. New feed
-- positions are at least 2^20 times the number of seconds since 1970, which exceeds former
-- positions unless the database ran a million transactions per second.
CREATE FUNCTION raise_feed_places() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    raised bigint;
BEGIN
    UPDATE feed_offsets SET places = greatest(
        places,
        (extract(epoch FROM clock_timestamp()) * 1048576)::bigint
            - pg_current_xact_id()::text::bigint
    ) RETURNING places INTO raised;
    PERFORM setval('feed_events_id_seq', last_value + 1000000000) FROM feed_events_id_seq;
    RETURN raised;
END
$$;
