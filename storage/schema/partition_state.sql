-- How a table is partitioned: the column and the sequence of its ids, how many ids a partition
-- has, and how long rows are kept, whatever upkeep is told. Then the last id that was given (or
-- the first one that will be), and whether it is time that ids are those of the next partition.
CREATE FUNCTION partition_state(
    table_name text, OUT key text, OUT numbers text, OUT ids_each bigint,
    OUT kept_at_least interval, OUT last_id bigint, OUT is_due boolean
) RETURNS record
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    turns_after interval;
    is_given boolean;
BEGIN
    SELECT r.key, r.numbers, r.ids_each, r.turns_after, r.kept_at_least
    INTO key, numbers, ids_each, turns_after, kept_at_least
    FROM (VALUES
        ('jobs', 'id', 'jobs_id_seq', 1000000000, interval '15 days', interval '7 days'),
        ('subscription_events', 'id', 'subscription_events_id_seq', 10000000000,
            interval '180 days', interval '1 year'),
        ('import_changes', 'import_id', 'imports_id_seq', 10000000,
            interval '30 days', interval '30 days'),
        ('feed_events', 'id', 'feed_events_id_seq', 100000000000,
            interval '10 days', interval '30 days'),
        ('bulk_changes', 'bulk_id', 'bulk_acts_id_seq', 10000000,
            interval '30 days', interval '30 days')
    ) AS r (name, key, numbers, ids_each, turns_after, kept_at_least)
    WHERE r.name = table_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the table % has no partitions', table_name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One at a time makes, turns or drops.
    PERFORM pg_advisory_xact_lock(hashtext('partitions'), hashtext(table_name));
    EXECUTE format('SELECT last_value, is_called FROM %I', numbers) INTO last_id, is_given;
    -- Those that ran full, and one from which a transaction turned that did not end.
    UPDATE partitions SET closed_at = clock_timestamp()
    WHERE parent = table_name AND to_id <= last_id AND closed_at IS NULL;
    SELECT is_given AND coalesce(max(closed_at), min(made_at)) <= now() - turns_after INTO is_due
    FROM partitions WHERE parent = table_name;
END
$$;
