-- Clears the origin of a subscription when an erasure clears the e-mail address. The trigger is
-- needed because release 1.0.0 erases a person without clearing the column `origin`.
CREATE FUNCTION clear_origin() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.origin = NULL;
    RETURN NEW;
END
$$;

CREATE TRIGGER subscriptions_clear_origin BEFORE UPDATE OF email ON subscriptions
    FOR EACH ROW WHEN (NEW.email IS NULL AND NEW.origin IS NOT NULL)
    EXECUTE FUNCTION clear_origin();
