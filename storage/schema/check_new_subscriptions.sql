-- Checks the foreign keys of new subscriptions in one statement for all new rows. Postgres would
-- check each foreign key of each row with a separate query, which would take a third of the time
-- for adding a member. The foreign keys of `subscriptions` are declared but not enforced by
-- Postgres. Like a foreign key check, the trigger locks the referenced row until the commit, so
-- that nobody can delete it. OFFSET 0 makes Postgres look up one row at a time, even if the table
-- statistics suggest a different plan. The query plan is cached, and must be fast for statements
-- with one row and for statements with ten thousand rows.
CREATE FUNCTION check_new_subscriptions() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    missing bigint;
BEGIN
    SELECT count(*) - count(held.id) INTO missing
    FROM (SELECT DISTINCT list_id FROM after_it) AS referred
    LEFT JOIN LATERAL (
        SELECT id FROM lists WHERE id = referred.list_id FOR KEY SHARE OFFSET 0
    ) AS held ON true;
    IF missing > 0 THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_list_id', COLUMN = 'list_id',
            MESSAGE = 'a subscription refers to a row of lists that is not there';
    END IF;
    SELECT count(*) - count(held.id) INTO missing
    FROM (SELECT user_id FROM after_it) AS referred
    LEFT JOIN LATERAL (
        SELECT id FROM users WHERE id = referred.user_id FOR KEY SHARE OFFSET 0
    ) AS held ON true;
    IF missing > 0 THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_user_id', COLUMN = 'user_id',
            MESSAGE = 'a subscription refers to a row of users that is not there';
    END IF;
    SELECT count(*) - count(held.id) INTO missing
    FROM (SELECT DISTINCT import_id FROM after_it WHERE import_id IS NOT NULL) AS referred
    LEFT JOIN LATERAL (
        SELECT id FROM imports WHERE id = referred.import_id FOR KEY SHARE OFFSET 0
    ) AS held ON true;
    IF missing > 0 THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_import_id', COLUMN = 'import_id',
            MESSAGE = 'a subscription refers to a row of imports that is not there';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_check_new AFTER INSERT ON subscriptions
    REFERENCING NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION check_new_subscriptions();
