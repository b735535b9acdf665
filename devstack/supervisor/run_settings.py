from devstack.supervisor.home import run_file
from devstack.supervisor.home.home_folder import Home


def settings_of(home: Home) -> dict[str, str]:
    """The PRESSROOM_ settings of the stack that runs on this home; empty when none runs."""
    run = run_file.read(home)
    return run.settings if run else {}
