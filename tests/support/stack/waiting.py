"""Checks whether processes are still running."""

from pathlib import Path

import psutil


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def list_users(directory: Path) -> list[str]:
    """Return the processes that use the directory."""
    users = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            texts = [*command, process.cwd(), *process.environ().values()]
            is_alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if is_alive and any(str(directory) in text for text in texts):
            users.append(f"{process.pid} {' '.join(command)[:200]}")
    return users
