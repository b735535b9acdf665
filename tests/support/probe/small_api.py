"""Runs `pressroom serve` with few places for requests in progress, so that tests fill them."""

from api.limits import places
from cli.main import main

places.MAX_PLACES = 200

if __name__ == "__main__":
    main()
