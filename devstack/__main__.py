"""Runs the supervisor in the process that `pressroom up` started."""

import sys


def main() -> int:
    # Import the commands inside ``main``, so that Ctrl-C during the slow import prints no
    # traceback.
    from devstack.supervisor import commands

    options = sys.argv[1:]
    return commands.run_supervisor(as_json="--json" in options, is_detached="--detached" in options)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
