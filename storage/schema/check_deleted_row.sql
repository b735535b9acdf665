-- Prevents the deletion of a list, user or import that subscriptions refer to. Only a transaction
-- with the isolation level READ COMMITTED may delete a list, user or import, because a transaction
-- with a stricter level may not see new subscriptions. The trigger's argument is the name of the
-- foreign key.
CREATE FUNCTION check_deleted_row() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE feature_not_supported USING MESSAGE = format(
            'rows of %s are deleted in read committed transactions only', TG_TABLE_NAME);
    END IF;
    CASE TG_TABLE_NAME
        WHEN 'lists' THEN
            PERFORM FROM subscriptions WHERE list_id = OLD.id LIMIT 1 FOR KEY SHARE;
        WHEN 'users' THEN
            PERFORM FROM subscriptions WHERE user_id = OLD.id LIMIT 1 FOR KEY SHARE;
        WHEN 'imports' THEN
            PERFORM FROM subscriptions WHERE import_id = OLD.id LIMIT 1 FOR KEY SHARE;
    END CASE;
    IF FOUND THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = TG_ARGV[0],
            MESSAGE = format('a subscription refers to the row of %s', TG_TABLE_NAME);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER lists_check_left AFTER DELETE OR UPDATE OF id ON lists
    FOR EACH ROW EXECUTE FUNCTION check_deleted_row('fk_subscriptions_list_id');

CREATE TRIGGER users_check_left AFTER DELETE OR UPDATE OF id ON users
    FOR EACH ROW EXECUTE FUNCTION check_deleted_row('fk_subscriptions_user_id');

CREATE TRIGGER imports_check_left AFTER DELETE OR UPDATE OF id ON imports
    FOR EACH ROW EXECUTE FUNCTION check_deleted_row('fk_subscriptions_import_id');
