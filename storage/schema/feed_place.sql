-- Returns the feed position of the current transaction. The column has this function as its
-- default, so that no writer can forget to set the position.
CREATE FUNCTION feed_place() RETURNS bigint LANGUAGE sql SET search_path = public, pg_temp AS $$
    SELECT places + pg_current_xact_id()::text::bigint FROM feed_offsets
$$;
