-- What a row counts of its owner's storage: its longest column, and an allowance for the others and
-- the indexes (services.access.quotas has the same).
CREATE FUNCTION row_bytes(longest text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 500 + coalesce(octet_length(longest), 0)
$$;
