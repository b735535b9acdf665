"""Add the table api_requests.

Release 1.0.0 doesn't use the table api_requests. When release 1.0.0 erases a person and deletes the
person's API keys, the foreign key deletes the keys' rows in api_requests.
"""

from alembic import op

revision = "0115"
down_revision = "0114"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE api_requests (
        key_id bigint NOT NULL,
        occurred_at timestamp with time zone NOT NULL,
        id bigint NOT NULL,
        method character varying NOT NULL,
        route character varying NOT NULL,
        status bigint NOT NULL,
        code character varying,
        request_id character varying NOT NULL,
        milliseconds bigint NOT NULL,
        CONSTRAINT pk_api_requests PRIMARY KEY (key_id, occurred_at, id),
        CONSTRAINT fk_api_requests_key_id FOREIGN KEY (key_id)
            REFERENCES api_keys(id) ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX ix_api_requests_occurred_at ON api_requests (occurred_at)")
