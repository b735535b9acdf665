"""${message}

The running release must keep working during this migration. Add a column before a release uses the
column. Remove a column after no release uses the column. Never rewrite or scan a large table under
a lock.
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
