"""Add teammates, the people who may act in an account.

An account without rows belongs to the person with the same id, as in release 1.1.0.
"""

from alembic import op

revision = "0149"
down_revision = "0148"
branch_labels = None
depends_on = None

_REQUIRE_OWNER = """
CREATE FUNCTION require_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    account bigint := coalesce(NEW.account_id, OLD.account_id);
BEGIN
    IF EXISTS (SELECT FROM teammates WHERE account_id = account)
    AND NOT EXISTS (SELECT FROM teammates WHERE account_id = account AND role = 'owner') THEN
        RAISE EXCEPTION 'account % has teammates but no owner', account
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'teammates_owner';
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER teammates_require_owner AFTER INSERT OR UPDATE OR DELETE ON teammates
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_owner();
"""


def upgrade() -> None:
    op.execute("""
    CREATE TABLE teammates (
        account_id bigint NOT NULL,
        person_id bigint NOT NULL,
        role character varying NOT NULL,
        joined_at timestamp with time zone DEFAULT now() NOT NULL,
        CONSTRAINT pk_teammates PRIMARY KEY (account_id, person_id),
        CONSTRAINT ck_teammates_role_known
            CHECK (role IN ('owner', 'admin', 'editor', 'analyst')),
        CONSTRAINT fk_teammates_account_id
            FOREIGN KEY (account_id) REFERENCES users(id) ON DELETE CASCADE,
        CONSTRAINT fk_teammates_person_id
            FOREIGN KEY (person_id) REFERENCES users(id) ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX ix_teammates_person_id ON teammates (person_id)")
    op.execute("""
    CREATE UNIQUE INDEX ix_teammates_owner ON teammates (account_id) WHERE role = 'owner'
    """)
    op.execute(_REQUIRE_OWNER)
