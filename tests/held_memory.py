import re
import time
from collections.abc import Callable
from pathlib import Path

from tests.stack import eventually

MEGABYTE = 1024 * 1024


def held_memory(pid: int) -> int:
    """Bytes of a process: what it shares with others counts in part; 0 once it has ended.

    Workers hide their maps from all but root. To others what they share counts in whole.
    """
    folder = Path(f"/proc/{pid}")
    try:
        counted = (folder / "smaps_rollup").read_text()
    except PermissionError:
        counted = (folder / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"^(?:Pss|VmRSS):\s+(\d+) kB", counted, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def settled_memory(memory: Callable[[], int]) -> int:
    """The memory once it stays as it is: converters give it back when they have idled a second."""
    level, since = 0, time.monotonic()

    def stays() -> bool:
        nonlocal level, since
        if abs(memory() - level) > MEGABYTE:
            level, since = memory(), time.monotonic()
        return time.monotonic() - since > 2

    eventually(stays, within=30, what="a memory that stays as it is")
    return level
