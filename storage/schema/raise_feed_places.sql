-- The numbers of transactions begin anew in a new cluster, and a dump knows neither the events nor
-- the cursors that were given after it. A place is at least as high as the microseconds since 1970
-- (or nearly: there are 2^20 places a second). Places of now are therefore above all that any
-- earlier database gave, unless that one made a million transactions a second. The same holds for
-- the ids.
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
