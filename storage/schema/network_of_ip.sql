-- Returns the /24 network of an IPv4 address or the /48 network of an IPv6 address. Returns NULL
-- for a text that is not an IP address. `network_of_ip` is immutable, so that it can be indexed.
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
