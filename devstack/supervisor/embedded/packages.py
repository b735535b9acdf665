"""Where pip put the embedded servers' binaries, found without running their packages."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from devstack.supervisor.errors import StackError


def binary(package: str, name: str) -> Path:
    try:
        found = next((each for each in files(package) or () if each.name == name), None)
    except PackageNotFoundError:
        found = None
    if found is None:
        raise StackError(
            f"The package {package} is not installed, or has no binary for this platform (there "
            "are ones for Linux on x86-64 and arm64, and macOS on arm64). Install it with `pip "
            "install -r requirements-devstack.txt`, or point PRESSROOM_DATABASE_URL, "
            "PRESSROOM_REDIS_URL and PRESSROOM_S3_ENDPOINT to servers of your own.",
            exit_code=2,
        )
    return Path(str(found.locate())).resolve()
