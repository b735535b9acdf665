-- Refuses to change or delete ledger entries.
CREATE FUNCTION refuse_ledger_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries of the ledger are never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER credit_entries_stay BEFORE DELETE OR UPDATE OR TRUNCATE ON credit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_changes();
