-- From now on ids are those of the next partition, if it is time. Returns its name, or nothing. A
-- sequence does not go back when a transaction is undone, so the partition must be committed.
CREATE FUNCTION turn_partition(table_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    state record;
    following partitions;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'partitions are turned in a transaction of their own'
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    SELECT * INTO state FROM partition_state(table_name);
    SELECT * INTO following FROM partitions
    WHERE parent = table_name AND from_id > state.last_id ORDER BY from_id LIMIT 1;
    IF NOT FOUND OR NOT state.is_due THEN
        RETURN NULL;
    END IF;
    PERFORM setval(state.numbers::regclass, following.from_id, false);
    UPDATE partitions SET closed_at = clock_timestamp()
    WHERE parent = table_name AND to_id <= following.from_id AND closed_at IS NULL;
    RETURN following.name;
END
$$;
