-- Replaces the IP addresses in old consent records with their networks. The application's role may
-- only add and read consent records. This function changes consent records with the rights of its
-- owner (SECURITY DEFINER), but never writes a value that the caller passes.
CREATE FUNCTION shorten_consent_ips(days integer, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    due timestamptz := now() - make_interval(days => greatest(days, 1));
    entries bigint;
    claims bigint;
BEGIN
    UPDATE consent_entries SET ip = network_of_ip(ip) WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM consent_entries WHERE strpos(ip, '/') = 0 AND occurred_at < due
        ORDER BY occurred_at LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS entries = ROW_COUNT;
    UPDATE consent_claims SET ip = network_of_ip(ip) WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM consent_claims WHERE strpos(ip, '/') = 0 AND occurred_at < due
        ORDER BY occurred_at LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS claims = ROW_COUNT;
    RETURN entries + claims;
END
$$;
