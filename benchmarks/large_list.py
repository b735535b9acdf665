"""Creates a realistic list with a million members, including tiers, tags and field values."""

from psycopg2.extensions import connection

from benchmarks.measure import measure_seconds
from devstack.harness.stack import Owner, Stack
from models import FieldType
from services.subscriptions import fields, lists, tags

MEMBERS = 1_000_000
# A second list contains every eleventh subscription, because real databases have several lists.
OTHERS = 11

_USERS = """
    INSERT INTO users (id, email)
    SELECT (random() * 9e15)::bigint, first || '.' || last || n || '@' || domain
    FROM generate_series(1, %s) AS n
    CROSS JOIN LATERAL (SELECT
        ('{ada,ben,chloe,dmitri,elena,farid,grace,hugo}'::text[])[1 + n %% 8] AS first,
        ('{adams,brown,castro,dubois,evans,fischer,garcia}'::text[])[1 + n %% 7] AS last,
        ('{example.com,example.org,example.net}'::text[])[1 + n %% 3] AS domain
    ) AS words
"""
# Every twentieth member of the large list has a paid tier, and some of the paid tiers have expired.
# In the large list, a third of the members have a tag, and a quarter have a value in a member
# field.
_SUBSCRIPTIONS = """
    INSERT INTO subscriptions (list_id, user_id, status, type, paid_expiry, name, email, source,
        tag_ids, fields)
    SELECT
        (%s::bigint[])[CASE WHEN n %% %s = 0 THEN 2 ELSE 1 END],
        id,
        'active',
        CASE WHEN n %% 20 > 0 THEN 'free' WHEN n %% 60 = 0 THEN 'gold' ELSE 'silver' END,
        CASE WHEN n %% 20 = 0 THEN now() + (n %% 360 - 59) * interval '1 day' END,
        initcap(split_part(email, '.', 1)),
        email,
        'import',
        CASE WHEN n %% 50000 = 7 THEN ARRAY[%s] WHEN n %% 3 = 0 THEN ARRAY[%s] ELSE '{}' END,
        CASE WHEN n %% 50000 = 9 THEN jsonb_build_object(%s, 'Utqiagvik')
            WHEN n %% 4 = 0 THEN jsonb_build_object(%s, 'Paris') ELSE '{}' END
    FROM (SELECT row_number() OVER () AS n, id, email FROM users WHERE email ~ '@example') AS people
"""


def create_large_list(stack: Stack, owner: Owner, database: connection) -> tuple[int, float]:
    """Create a list with a million members, and return its id and the insert time in seconds."""
    with stack.resources.unit_of_work() as uow:
        list_ids = [
            lists.create_list(uow, account_id=owner.account_id, title="A list", slug=slug).id
            for slug in ("large", "other")
        ]
        tag_ids = tags.find_tag_ids(uow, list_ids[0], ("rare", "common"), create=True)
        kind = FieldType.TEXT
        city = fields.create_field(uow, owner.account_id, type=kind, key="city", label="City")
        field_id = str(city.id)
    values = (list_ids, OTHERS, tag_ids["rare"], tag_ids["common"], field_id, field_id)
    with database.cursor() as sql:
        sql.execute(_USERS, (MEMBERS * OTHERS // (OTHERS - 1) + 1,))
        seconds = measure_seconds(lambda: sql.execute(_SUBSCRIPTIONS, values))
        # Vacuum the tables immediately, as autovacuum would do a few minutes later.
        for table in ("users", "subscriptions", "subscriber_deltas"):
            sql.execute(f"VACUUM ANALYZE {table}")
    return list_ids[0], seconds
