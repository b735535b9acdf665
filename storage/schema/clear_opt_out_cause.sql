-- Clears the mailing and the stated reason of an opt-out when its person is erased. An erasure only
-- removes the person's id, because release 1.1.0 doesn't know these two columns.
CREATE FUNCTION clear_opt_out_cause() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.mailing_id = NULL;
    NEW.reason = NULL;
    RETURN NEW;
END
$$;

CREATE TRIGGER opt_outs_clear_cause BEFORE UPDATE OF user_id ON opt_outs
    FOR EACH ROW WHEN (NEW.user_id IS NULL)
    EXECUTE FUNCTION clear_opt_out_cause();
