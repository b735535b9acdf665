"""The supervisor's process, which replaces the process of `pressroom up`."""

import sys


def main() -> int:
    # The import takes a moment. Importing in this function prevents a traceback if the user presses
    # Ctrl-C during the import.
    from devstack.supervisor import commands

    return commands.supervise(as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
