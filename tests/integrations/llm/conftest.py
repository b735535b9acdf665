import pytest

from tests.language_model import Run


@pytest.fixture
def run(sandbox: str) -> Run:
    return Run(sandbox)
