"""Runs `pressroom serve` with cheap password hashes, so that logins in tests are fast.

``python -m tests.support.probe.serve serve …`` starts the API with cheap password hashes.
"""

from cli.main import main
from tests.support.stack.cheap_passwords import use_cheap_hashes

if __name__ == "__main__":
    use_cheap_hashes()
    main()
