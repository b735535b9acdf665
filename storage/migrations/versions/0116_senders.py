"""Add mailings.

Release 1.0.0 exports rosters without a label, and creates no mailings.
"""

from alembic import op

revision = "0116"
down_revision = "0115"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE exports ADD COLUMN label character varying")
    op.execute("""
    CREATE TABLE mailings (
        id bigint NOT NULL,
        list_id bigint NOT NULL,
        label character varying,
        created_at timestamp with time zone NOT NULL,
        rows bigint NOT NULL,
        delivered bigint DEFAULT 0 NOT NULL,
        hard_bounced bigint DEFAULT 0 NOT NULL,
        soft_bounced bigint DEFAULT 0 NOT NULL,
        blocked bigint DEFAULT 0 NOT NULL,
        complained bigint DEFAULT 0 NOT NULL,
        unsubscribed bigint DEFAULT 0 NOT NULL,
        opened bigint DEFAULT 0 NOT NULL,
        machine_opened bigint DEFAULT 0 NOT NULL,
        clicked bigint DEFAULT 0 NOT NULL,
        CONSTRAINT pk_mailings PRIMARY KEY (id),
        CONSTRAINT fk_mailings_list_id FOREIGN KEY (list_id) REFERENCES lists(id)
    )
    """)
    op.execute("CREATE INDEX ix_mailings_list_id_id ON mailings (list_id, id DESC)")
    op.execute("CREATE INDEX ix_mailings_created_at ON mailings (created_at)")
