-- Records opt-outs for the journal that is stored next to the backups. The trigger runs once per
-- statement, because an import may write thousands of opt-outs in one statement.
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
