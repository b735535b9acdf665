"""Count the imported members with each origin and page, so that the console can leave them out.

Triggers also count the changes that release 1.1.0 makes. A worker of release 1.1.0 that merges
changes loses the numbers of imported members in them. Changes before the migration aren't counted.
"""

from alembic import op

revision = "0145"
down_revision = "0144"
branch_labels = None
depends_on = None

_TABLES = ("origin_days", "origin_day_deltas", "landing_days", "landing_day_deltas")
_COUNT_ORIGINS = """
CREATE OR REPLACE FUNCTION count_origins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO origin_day_deltas
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone, imported)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''),
            coalesce(origin ->> 'utm_medium', ''), coalesce(origin ->> 'utm_campaign', ''),
            coalesce(origin ->> 'referrer', ''), count(*), 0,
            count(*) FILTER (WHERE source = 'import')
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
            (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone, imported)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, coalesce(origin ->> 'utm_source', ''),
            coalesce(origin ->> 'utm_medium', ''), coalesce(origin ->> 'utm_campaign', ''),
            coalesce(origin ->> 'referrer', ''),
            count(*) FILTER (WHERE is_active), count(*) FILTER (WHERE was_active),
            count(*) FILTER (WHERE is_active AND is_imported)
        FROM (
            SELECT list_id, bool_or(is_after AND status = 'active') AS is_active,
                bool_or(NOT is_after AND status = 'active') AS was_active,
                bool_or(is_after AND source = 'import') AS is_imported,
                (array_agg(origin ORDER BY is_after DESC) FILTER (WHERE origin IS NOT NULL))[1]
                    AS origin
            FROM (
                SELECT id, list_id, status, source, origin, true AS is_after FROM after_it
                UNION ALL
                SELECT id, list_id, status, source, origin, false FROM before_it
            ) AS either
            GROUP BY id, list_id
        ) AS changed
        WHERE origin IS NOT NULL AND is_active <> was_active
        GROUP BY 1, 2, 3, 4, 5, 6;
    END IF;
    RETURN NULL;
END
$$;
"""
_COUNT_LANDINGS = """
CREATE OR REPLACE FUNCTION count_landings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO landing_day_deltas (list_id, day, landing, joined, gone, imported)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, origin ->> 'landing', count(*), 0,
            count(*) FILTER (WHERE source = 'import')
        FROM after_it WHERE status = 'active' AND origin ->> 'landing' IS NOT NULL GROUP BY 1, 2, 3;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO landing_day_deltas (list_id, day, landing, joined, gone)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, origin ->> 'landing', 0, count(*)
        FROM before_it WHERE status = 'active' AND origin ->> 'landing' IS NOT NULL
        GROUP BY 1, 2, 3;
    ELSIF EXISTS (SELECT FROM after_it WHERE origin ->> 'landing' IS NOT NULL)
        OR EXISTS (SELECT FROM before_it WHERE origin ->> 'landing' IS NOT NULL)
    THEN
        INSERT INTO landing_day_deltas (list_id, day, landing, joined, gone, imported)
        SELECT list_id, (now() AT TIME ZONE 'UTC')::date, landing,
            count(*) FILTER (WHERE is_active), count(*) FILTER (WHERE was_active),
            count(*) FILTER (WHERE is_active AND is_imported)
        FROM (
            SELECT list_id, bool_or(is_after AND status = 'active') AS is_active,
                bool_or(NOT is_after AND status = 'active') AS was_active,
                bool_or(is_after AND source = 'import') AS is_imported,
                (array_agg(origin ->> 'landing' ORDER BY is_after DESC)
                    FILTER (WHERE origin IS NOT NULL))[1] AS landing
            FROM (
                SELECT id, list_id, status, source, origin, true AS is_after FROM after_it
                UNION ALL
                SELECT id, list_id, status, source, origin, false FROM before_it
            ) AS either
            GROUP BY id, list_id
        ) AS changed
        WHERE landing IS NOT NULL AND is_active <> was_active
        GROUP BY 1, 2, 3;
    END IF;
    RETURN NULL;
END
$$;
"""


def upgrade() -> None:
    for table in _TABLES:
        op.execute(f"ALTER TABLE {table} ADD COLUMN imported bigint NOT NULL DEFAULT 0")
    op.execute(_COUNT_ORIGINS)
    op.execute(_COUNT_LANDINGS)
