from devstack.sandbox.__main__ import main
from tests.support.sandbox.providers import PROVIDERS_WITH_FAULTS

if __name__ == "__main__":
    main(PROVIDERS_WITH_FAULTS)
