"""Measures the memory that a process uses."""

import re
from pathlib import Path


def measure_memory(pid: int) -> int:
    """Return how many bytes of memory a process uses, or 0 if the process has ended.

    The result counts shared memory divided by the number of processes that share it (PSS). Workers
    hide their memory maps from all users except root. If the caller isn't root, the result for a
    worker includes all shared memory that the worker uses (RSS).
    """
    folder = Path(f"/proc/{pid}")
    try:
        text = (folder / "smaps_rollup").read_text()
    except PermissionError:
        text = (folder / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    match = re.search(r"^(?:Pss|VmRSS):\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
