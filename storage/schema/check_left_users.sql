-- A person whom subscriptions refer to stays; see `check_left_lists`.
CREATE FUNCTION check_left_users() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE feature_not_supported
            USING MESSAGE = 'rows of users are deleted in read committed transactions only';
    END IF;
    PERFORM FROM subscriptions WHERE user_id = OLD.id LIMIT 1 FOR KEY SHARE;
    IF FOUND THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_user_id',
            MESSAGE = 'a subscription refers to the row of users';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER users_check_left AFTER DELETE OR UPDATE OF id ON users
    FOR EACH ROW EXECUTE FUNCTION check_left_users();
