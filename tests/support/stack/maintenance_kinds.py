"""The kinds of maintenance that the product registers."""

import workers.task_table  # noqa: F401 - registers all maintenance
from services.jobs import maintenance

# The seconds between two runs of each kind.
MAINTENANCE_SECONDS = {
    kind.name: kind.every.total_seconds()
    for kind in maintenance.list_kinds()
    # Some tests register kinds of their own.
    if not kind.name.startswith("probe.")
}
