"""The supervisor's own process: `pressroom up` becomes it."""

import sys


def main() -> int:
    # Imported here, so that Ctrl-C while that takes its moment is no traceback.
    from devstack.supervisor import commands

    return commands.supervise(as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
