-- The /24 of an IPv4 address, the /48 of an IPv6 address, and nothing of a text that is none.
-- An index has it, and what is an address to Postgres stays one.
CREATE FUNCTION network_of_ip(ip text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = public, pg_temp AS $$
BEGIN
    -- Not in one expression, whose parts may be computed before the condition is.
    IF NOT pg_input_is_valid(ip, 'inet') THEN
        RETURN NULL;
    END IF;
    RETURN text(network(
        set_masklen(ip::inet, CASE family(ip::inet) WHEN 4 THEN 24 ELSE 48 END)));
END
$$;
