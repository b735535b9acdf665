-- An import that subscriptions refer to stays; see `check_left_lists`.
CREATE FUNCTION check_left_imports() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE feature_not_supported
            USING MESSAGE = 'rows of imports are deleted in read committed transactions only';
    END IF;
    PERFORM FROM subscriptions WHERE import_id = OLD.id LIMIT 1 FOR KEY SHARE;
    IF FOUND THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_import_id',
            MESSAGE = 'a subscription refers to the row of imports';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER imports_check_left AFTER DELETE OR UPDATE OF id ON imports
    FOR EACH ROW EXECUTE FUNCTION check_left_imports();
