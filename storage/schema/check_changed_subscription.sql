-- Checks the foreign keys of a changed subscription, because Postgres doesn't enforce them (see
-- `check_new_subscriptions`).
CREATE FUNCTION check_changed_subscription() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.list_id IS DISTINCT FROM OLD.list_id AND NEW.list_id IS NOT NULL THEN
        PERFORM FROM lists WHERE id = NEW.list_id FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING TABLE = 'subscriptions',
                CONSTRAINT = 'fk_subscriptions_list_id', COLUMN = 'list_id',
                MESSAGE = 'a subscription refers to a row of lists that is not there';
        END IF;
    END IF;
    IF NEW.user_id IS DISTINCT FROM OLD.user_id AND NEW.user_id IS NOT NULL THEN
        PERFORM FROM users WHERE id = NEW.user_id FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING TABLE = 'subscriptions',
                CONSTRAINT = 'fk_subscriptions_user_id', COLUMN = 'user_id',
                MESSAGE = 'a subscription refers to a row of users that is not there';
        END IF;
    END IF;
    IF NEW.import_id IS DISTINCT FROM OLD.import_id AND NEW.import_id IS NOT NULL THEN
        PERFORM FROM imports WHERE id = NEW.import_id FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING TABLE = 'subscriptions',
                CONSTRAINT = 'fk_subscriptions_import_id', COLUMN = 'import_id',
                MESSAGE = 'a subscription refers to a row of imports that is not there';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_check_changed AFTER UPDATE OF list_id, user_id, import_id
    ON subscriptions
    FOR EACH ROW WHEN (
        NEW.list_id IS DISTINCT FROM OLD.list_id
        OR NEW.user_id IS DISTINCT FROM OLD.user_id
        OR NEW.import_id IS DISTINCT FROM OLD.import_id)
    EXECUTE FUNCTION check_changed_subscription();
