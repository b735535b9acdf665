import pytest

from tests.support.composer.language_model import Run


@pytest.fixture
def model_run(sandbox: str) -> Run:
    """A client of the sandbox's language model that has sent no requests yet."""
    return Run(sandbox)
