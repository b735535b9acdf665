"""Add the origins of sign-ups, and the tables sign_up_views, origin_days and origin_day_deltas.

Members that release 1.0.0 adds have no origin, because release 1.0.0 doesn't use the new columns.
When release 1.0.0 erases a person, a trigger clears the origin of the person's subscriptions. The
erasure deletes the person's consent entries with their origins. Triggers also count the changes
that release 1.0.0 makes.
"""

from alembic import op

revision = "0118"
down_revision = "0117"
branch_labels = None
depends_on = None


_CLEAR_ORIGIN = """
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
"""

_COUNT_ORIGINS = """
CREATE FUNCTION count_origins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO origin_day_deltas
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''),
            coalesce(origin ->> 'utm_medium', ''), coalesce(origin ->> 'utm_campaign', ''),
            coalesce(origin ->> 'referrer', ''), count(*), 0
        FROM after_it WHERE status = 'active' AND origin IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO origin_day_deltas
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''),
            coalesce(origin ->> 'utm_medium', ''), coalesce(origin ->> 'utm_campaign', ''),
            coalesce(origin ->> 'referrer', ''), 0, count(*)
        FROM before_it WHERE status = 'active' AND origin IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6;
    ELSIF EXISTS (SELECT FROM after_it WHERE origin IS NOT NULL)
        OR EXISTS (SELECT FROM before_it WHERE origin IS NOT NULL)
    THEN
        INSERT INTO origin_day_deltas
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''),
            coalesce(origin ->> 'utm_medium', ''), coalesce(origin ->> 'utm_campaign', ''),
            coalesce(origin ->> 'referrer', ''),
            count(*) FILTER (WHERE is_active), count(*) FILTER (WHERE was_active)
        FROM (
            SELECT list_id, bool_or(is_after AND status = 'active') AS is_active,
                bool_or(NOT is_after AND status = 'active') AS was_active,
                (array_agg(origin ORDER BY is_after DESC) FILTER (WHERE origin IS NOT NULL))[1]
                    AS origin
            FROM (
                SELECT id, list_id, status, origin, true AS is_after FROM after_it
                UNION ALL
                SELECT id, list_id, status, origin, false FROM before_it
            ) AS either
            GROUP BY id, list_id
        ) AS changed
        WHERE origin IS NOT NULL AND is_active <> was_active
        GROUP BY 1, 2, 3, 4, 5, 6;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_origins_delete AFTER DELETE ON subscriptions
    REFERENCING OLD TABLE AS before_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_origins();

CREATE TRIGGER subscriptions_origins_insert AFTER INSERT ON subscriptions
    REFERENCING NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_origins();

CREATE TRIGGER subscriptions_origins_update AFTER UPDATE ON subscriptions
    REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION count_origins();
"""


def upgrade() -> None:
    for table in ("subscriptions", "consent_entries", "consent_claims"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN origin jsonb")
    op.execute(_CLEAR_ORIGIN)
    op.execute("""
    CREATE TABLE sign_up_views (
        list_id bigint NOT NULL,
        day date NOT NULL,
        seen bigint NOT NULL,
        CONSTRAINT pk_sign_up_views PRIMARY KEY (list_id, day),
        CONSTRAINT fk_sign_up_views_list_id FOREIGN KEY (list_id) REFERENCES lists(id)
    )
    """)
    op.execute("""
    CREATE TABLE origin_days (
        list_id bigint NOT NULL,
        day date NOT NULL,
        utm_source character varying NOT NULL,
        utm_medium character varying NOT NULL,
        utm_campaign character varying NOT NULL,
        referrer character varying NOT NULL,
        joined bigint NOT NULL,
        gone bigint NOT NULL,
        CONSTRAINT pk_origin_days
            PRIMARY KEY (list_id, day, utm_source, utm_medium, utm_campaign, referrer),
        CONSTRAINT fk_origin_days_list_id FOREIGN KEY (list_id) REFERENCES lists(id)
    )
    """)
    op.execute("""
    CREATE TABLE origin_day_deltas (
        id bigint GENERATED BY DEFAULT AS IDENTITY,
        list_id bigint NOT NULL,
        day date NOT NULL,
        utm_source character varying NOT NULL,
        utm_medium character varying NOT NULL,
        utm_campaign character varying NOT NULL,
        referrer character varying NOT NULL,
        joined bigint NOT NULL,
        gone bigint NOT NULL,
        CONSTRAINT pk_origin_day_deltas PRIMARY KEY (id)
    )
    """)
    op.execute("CREATE INDEX ix_origin_day_deltas_list_id ON origin_day_deltas (list_id)")
    op.execute(_COUNT_ORIGINS)
