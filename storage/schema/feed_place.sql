-- Returns the feed position of the current transaction. `feed_place` is the default of the column
-- `feed_events.place`, so that no writer can forget the position.
CREATE FUNCTION feed_place() RETURNS bigint LANGUAGE sql SET search_path = public, pg_temp AS $$
    SELECT places + pg_current_xact_id()::text::bigint FROM feed_offsets
$$;
