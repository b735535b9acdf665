import pytest

from tests.support.composer.language_model import Run


@pytest.fixture
def model_run(sandbox: str) -> Run:
    """A run of the language model in the sandbox, without requests so far."""
    return Run(sandbox)
