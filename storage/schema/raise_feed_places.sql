-- Raises the next position and id of a feed event after a restore of the database, so that they
-- exceed all values from before the restore. In a new Postgres cluster, transaction numbers start
-- from the beginning. A restored dump lacks the events and cursors that were created after the
-- dump. A raised feed position is at least 2^20 times the number of seconds since 1970. A new feed
-- position exceeds all positions from before the restore, unless the database ran a million
-- transactions per second.
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
