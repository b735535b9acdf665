-- Ensures that an account with teammates has an owner. A unique index ensures that it has only one.
-- The check runs at the end of the transaction, so that two people can swap their roles.
CREATE FUNCTION require_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    account bigint := coalesce(NEW.account_id, OLD.account_id);
BEGIN
    IF EXISTS (SELECT FROM teammates WHERE account_id = account)
    AND NOT EXISTS (SELECT FROM teammates WHERE account_id = account AND role = 'owner') THEN
        RAISE EXCEPTION 'account % has teammates but no owner', account
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'teammates_owner';
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER teammates_require_owner AFTER INSERT OR UPDATE OR DELETE ON teammates
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_owner();
