"""The kinds of maintenance that the product registers, without those that tests register."""

import workers.task_table  # noqa: F401 - registers all maintenance
from services.jobs import maintenance

# Maps each kind of maintenance to the seconds between two of its runs.
MAINTENANCE_SECONDS = {
    kind.name: kind.every.total_seconds()
    for kind in maintenance.list_kinds()
    # Tests register additional kinds of maintenance, whose names begin with "probe.".
    if not kind.name.startswith("probe.")
}
