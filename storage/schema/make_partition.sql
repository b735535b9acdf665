-- Makes the next partition when it is time, and when the current one is half full; the first one
-- at once. Returns its name, or nothing. It waits no longer for a lock for which callers queue
-- behind it, and is called again. The application reads a partition and writes through its table
-- alone: by its default rights it would change in a partition what its right to the table forbids.
CREATE FUNCTION make_partition(table_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    state record;
    -- NULL throughout before there is a partition.
    newest partitions;
    suffix text;
    options text;
    first_id bigint;
    index record;
    grantee text;
BEGIN
    SELECT * INTO state FROM partition_state(table_name);
    SELECT * INTO newest FROM partitions WHERE parent = table_name ORDER BY to_id DESC LIMIT 1;
    IF newest.from_id > state.last_id
        OR (NOT state.is_due AND state.last_id < newest.to_id - state.ids_each / 2)
    THEN
        RETURN NULL;
    END IF;
    first_id := coalesce(newest.to_id, 0);
    suffix := '_p' || first_id / state.ids_each;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING IDENTITY EXCLUDING INDEXES)',
        table_name || suffix, table_name);
    -- A partitioned table has no storage parameters of its own.
    SELECT array_to_string(reloptions, ', ') INTO options
    FROM pg_class WHERE oid = newest.name::regclass;
    IF options <> '' THEN
        EXECUTE format('ALTER TABLE %I SET (%s)', table_name || suffix, options);
    END IF;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
        table_name, table_name || suffix, coalesce(newest.to_id::text, 'MINVALUE'),
        first_id + state.ids_each);
    FOR index IN
        SELECT own.relname AS name, whole.relname || suffix AS fitting FROM pg_index
        JOIN pg_inherits ON inhrelid = indexrelid JOIN pg_class AS own ON own.oid = indexrelid
        JOIN pg_class AS whole ON whole.oid = inhparent
        WHERE indrelid = (table_name || suffix)::regclass
    LOOP
        EXECUTE format('ALTER INDEX %I RENAME TO %I', index.name, index.fitting);
    END LOOP;
    FOR grantee IN
        SELECT DISTINCT acl.grantee::regrole::text FROM pg_class, aclexplode(relacl) AS acl
        WHERE oid = (table_name || suffix)::regclass AND acl.grantee NOT IN (0, relowner)
    LOOP
        EXECUTE format('REVOKE ALL ON TABLE %I FROM %s', table_name || suffix, grantee);
        -- A backup may be read by the application's role.
        EXECUTE format('GRANT SELECT ON TABLE %I TO %s', table_name || suffix, grantee);
    END LOOP;
    INSERT INTO partitions (name, parent, from_id, to_id)
    VALUES (table_name || suffix, table_name, first_id, first_id + state.ids_each);
    RETURN table_name || suffix;
END
$$;
