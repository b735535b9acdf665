-- Rejects an import if release 1.0.0 has read the file without applying the owner's options. The
-- error makes the worker of release 1.0.0 retry the job until a newer worker reads the file. Only
-- newer releases store the key `sheet` in the description of a file.
CREATE FUNCTION require_import_options() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    RAISE serialization_failure USING
        MESSAGE = format('import %s needs a worker that reads all of its options', NEW.id);
END
$$;

CREATE TRIGGER imports_require_options BEFORE UPDATE OF is_split ON imports
    FOR EACH ROW WHEN (
        NEW.is_split AND NOT OLD.is_split
        AND (NEW.status_values IS NOT NULL OR NEW.encoding IS NOT NULL)
        AND NOT coalesce(NEW.description ? 'sheet', false)
    )
    EXECUTE FUNCTION require_import_options();
