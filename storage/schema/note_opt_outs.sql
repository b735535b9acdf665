-- Each opt-out leaves a row for the journal beside the backups. Once a statement: an import may
-- write thousands of opt-outs with one.
CREATE FUNCTION note_opt_outs() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO departures (kind, list_id, user_id, address_hmac, source)
    SELECT kind, list_id, user_id, address_hmac, source FROM added;
    RETURN NULL;
END
$$;

CREATE TRIGGER opt_outs_are_noted AFTER INSERT ON opt_outs
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION note_opt_outs();
