"""Add the table bounces, and the column lists.soft_bounce_limit.

Release 1.0.0 doesn't use the table bounces. When release 1.0.0 turns a member's mail on, a trigger
lifts the member's bounces. When release 1.0.0 deletes a row in users, the foreign key sets the
user_id of the person's bounces to NULL.
"""

from alembic import op

revision = "0117"
down_revision = "0116"
branch_labels = None
depends_on = None


_LIFT_BOUNCES = """
CREATE FUNCTION lift_bounces() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM bounces
    WHERE list_id = NEW.list_id AND user_id = NEW.user_id
        AND ended_at IS NULL AND lifted_at IS NULL
    ORDER BY list_id, address_hmac, mailing_id FOR UPDATE;
    UPDATE bounces SET lifted_at = clock_timestamp()
    WHERE list_id = NEW.list_id AND user_id = NEW.user_id
        AND ended_at IS NULL AND lifted_at IS NULL;
    RETURN NULL;
END
$$;

CREATE TRIGGER subscriptions_lift_bounces AFTER UPDATE OF email_enabled ON subscriptions
    FOR EACH ROW WHEN (NEW.email_enabled AND NOT OLD.email_enabled)
    EXECUTE FUNCTION lift_bounces();
"""


def upgrade() -> None:
    op.execute("""
    ALTER TABLE lists ADD COLUMN soft_bounce_limit bigint DEFAULT 5 NOT NULL,
        ADD CONSTRAINT ck_lists_soft_bounce_limit_range CHECK (soft_bounce_limit BETWEEN 0 AND 20)
    """)
    op.execute("""
    CREATE TABLE bounces (
        list_id bigint NOT NULL,
        address_hmac bytea NOT NULL,
        mailing_id bigint NOT NULL,
        user_id bigint,
        is_hard boolean NOT NULL,
        status character varying,
        mailing_at timestamp with time zone NOT NULL,
        bounced_at timestamp with time zone NOT NULL,
        stopped_at timestamp with time zone,
        ended_at timestamp with time zone,
        lifted_at timestamp with time zone,
        is_lifted_by_owner boolean DEFAULT false NOT NULL,
        created_at timestamp with time zone DEFAULT now() NOT NULL,
        CONSTRAINT pk_bounces PRIMARY KEY (list_id, address_hmac, mailing_id),
        CONSTRAINT ck_bounces_hmac_length CHECK (octet_length(address_hmac) = 32),
        CONSTRAINT ck_bounces_hard_never_ends CHECK (ended_at IS NULL OR NOT is_hard),
        CONSTRAINT fk_bounces_list_id FOREIGN KEY (list_id) REFERENCES lists(id),
        CONSTRAINT fk_bounces_user_id FOREIGN KEY (user_id)
            REFERENCES users(id) ON DELETE SET NULL
    )
    """)
    op.execute("""
    CREATE INDEX ix_bounces_counting ON bounces (list_id, user_id)
        WHERE ended_at IS NULL AND lifted_at IS NULL
    """)
    op.execute("CREATE INDEX ix_bounces_user_id ON bounces (user_id)")
    op.execute("CREATE INDEX ix_bounces_created_at ON bounces (created_at)")
    op.execute(_LIFT_BOUNCES)
