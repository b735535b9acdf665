from typing import Any

from core.lanes import Lane
from storage.broker import queue_name

SCHEDULE: dict[str, dict[str, Any]] = {
    "purge": {
        "task": "maintenance.purge",
        "schedule": 3600.0,
        # A message that no worker took within the hour is superseded by the next.
        "options": {"queue": queue_name(Lane.IO), "expires": 3000},
    },
    "sweep-files": {
        "task": "maintenance.sweep_files",
        "schedule": 3600.0,
        "options": {"queue": queue_name(Lane.IO), "expires": 3000},
    },
    "sweep-uploads": {
        "task": "maintenance.sweep_uploads",
        "schedule": 3600.0,
        "options": {"queue": queue_name(Lane.IO), "expires": 3000},
    },
    "poll-orders": {
        "task": "topups.poll",
        "schedule": 30.0,
        "options": {"queue": queue_name(Lane.IO), "expires": 25},
    },
    "fold-counts": {
        "task": "maintenance.fold_counts",
        "schedule": 30.0,
        "options": {"queue": queue_name(Lane.IO), "expires": 25},
    },
}
