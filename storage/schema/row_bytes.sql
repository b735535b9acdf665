-- Returns how many bytes a row adds to the storage of its owner. The result is the size of the
-- longest column plus an allowance for other columns and indexes. `services.access.quotas`
-- contains the same calculation.
CREATE FUNCTION row_bytes(longest text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 500 + coalesce(octet_length(longest), 0)
$$;
