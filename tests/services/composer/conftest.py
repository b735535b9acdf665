import pytest

from tests.support.composer.language_model import Run


@pytest.fixture
def model_run(sandbox: str) -> Run:
    return Run(sandbox)
