-- Returns how many bytes a row adds to the storage that its owner uses. The size of a row is the
-- size of its longest column plus an allowance for all other columns and the indexes. The Python
-- module `services.access.quotas` contains the same calculation.
CREATE FUNCTION row_bytes(longest text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 500 + coalesce(octet_length(longest), 0)
$$;
