-- Ends the consent and deletes the engagement of members who are no longer active. A refusal stays.
-- The trigger runs once per statement, because a bulk action may remove thousands of members in one
-- statement.
CREATE FUNCTION end_engagement() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    lists bigint[];
    people bigint[];
BEGIN
    IF TG_OP = 'UPDATE' THEN
        SELECT array_agg(list_id), array_agg(user_id) INTO lists, people FROM (
            SELECT list_id, user_id FROM after_it WHERE status <> 'active'
            INTERSECT
            SELECT list_id, user_id FROM before_it WHERE status = 'active'
        ) AS gone;
    ELSE
        SELECT array_agg(list_id), array_agg(user_id) INTO lists, people
        FROM before_it WHERE status = 'active';
    END IF;
    IF lists IS NULL THEN
        RETURN NULL;
    END IF;
    DELETE FROM engagement_answers AS a
    USING unnest(lists, people) AS gone (list_id, user_id)
    WHERE a.list_id = gone.list_id AND a.user_id = gone.user_id AND a.is_allowed;
    DELETE FROM member_engagement AS e
    USING unnest(lists, people) AS gone (list_id, user_id)
    WHERE e.list_id = gone.list_id AND e.user_id = gone.user_id;
    DELETE FROM mailing_marks AS m
    USING unnest(lists, people) AS gone (list_id, user_id)
    WHERE m.user_id = gone.user_id AND m.list_id = gone.list_id
        AND m.kind IN ('opened', 'machine_opened', 'clicked');
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_end_engagement_delete AFTER DELETE ON subscriptions
    REFERENCING OLD TABLE AS before_it
    FOR EACH STATEMENT EXECUTE FUNCTION end_engagement();

CREATE TRIGGER subscriptions_end_engagement_update AFTER UPDATE ON subscriptions
    REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION end_engagement();
