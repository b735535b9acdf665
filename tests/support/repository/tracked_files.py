"""Lists the files that git tracks."""

import subprocess
from pathlib import Path

from tests.support.prerequisites import skip_or_fail

ROOT = Path(__file__).parents[3]
# The product's top-level packages.
OURS = (
    "api",
    "workers",
    "services",
    "integrations",
    "models",
    "storage",
    "core",
    "cli",
    "devstack",
)


def run_git(*arguments: str) -> str:
    """Return the output of git. Skip the test outside of a checkout."""
    if not (ROOT / ".git").exists():
        skip_or_fail("Without a checkout, git can't list tracked files and commits.")
    completed = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return completed.stdout


def list_tracked_files(*patterns: str) -> set[str]:
    """Return the tracked files that a pattern matches, or all tracked files without a pattern.

    An asterisk in a pattern doesn't match a slash. Two asterisks match slashes too.
    """
    listed = run_git("ls-files", "-z", "--", *(f":(top,glob){pattern}" for pattern in patterns))
    return {path for path in listed.split("\0") if path}
