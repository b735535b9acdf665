-- The place of the transaction that calls it. The column has it as its default, so no writer can
-- forget it.
CREATE FUNCTION feed_place() RETURNS bigint LANGUAGE sql SET search_path = public, pg_temp AS $$
    SELECT places + pg_current_xact_id()::text::bigint FROM feed_offsets
$$;
