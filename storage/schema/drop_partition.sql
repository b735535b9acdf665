-- Drops the oldest partition that outlived its time. Returns its name, or nothing.
CREATE FUNCTION drop_partition(table_name text, kept interval) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    state record;
    part partitions;
BEGIN
    SELECT * INTO state FROM partition_state(table_name);
    IF kept IS NULL OR kept < state.kept_at_least THEN
        RAISE EXCEPTION 'rows of % are kept for at least %', table_name, state.kept_at_least
            USING ERRCODE = 'restrict_violation';
    END IF;
    FOR part IN
        SELECT * FROM partitions WHERE parent = table_name AND closed_at < now() - kept
        ORDER BY from_id
    LOOP
        CONTINUE WHEN NOT is_outlived(part, now() - kept);
        EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', table_name);
        -- A failed job may just have been started again. That is seen in no time; an import that
        -- ended so long ago can't be, and there are many imports to look at.
        CONTINUE WHEN table_name = 'jobs' AND NOT is_outlived(part, now() - kept);
        EXECUTE format('DROP TABLE %I', part.name);
        DELETE FROM partitions WHERE name = part.name;
        RETURN part.name;
    END LOOP;
    RETURN NULL;
END
$$;
