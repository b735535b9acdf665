"""The children's log files."""

from pathlib import Path

_MAX_LOG_BYTES = 10 * 1024 * 1024


def rotate(log: Path) -> None:
    """Put a log that has grown past its limit aside; one older one is kept."""
    if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def last_lines(log: Path, count: int = 15) -> str:
    """The end of a log file; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-count:])
