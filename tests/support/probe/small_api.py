"""Runs `pressroom serve` with few places for requests in progress, so that tests fill them.

No request is refused because it has waited for too long, as it may on a busy machine.
"""

from api.limits import places
from api.middleware import admission
from cli.main import main

places.MAX_PLACES = 200
admission._MAX_WAIT_SECONDS = 600.0
admission._MAX_WAIT_SECONDS_OF_CHARGES_AND_REPORTS = 600.0

if __name__ == "__main__":
    main()
