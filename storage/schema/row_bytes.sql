-- Returns how many bytes a row counts towards its owner's quota, which is the size of its longest
-- column plus an allowance for other columns and indexes. The Python module
-- `services.access.quotas` contains the same calculation.
CREATE FUNCTION row_bytes(longest text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 500 + coalesce(octet_length(longest), 0)
$$;
