import pytest

from tests.support.composer.language_model import LanguageModelRun


@pytest.fixture
def model_run(sandbox: str) -> LanguageModelRun:
    """A client of the sandbox's language model that has sent no requests yet."""
    return LanguageModelRun(sandbox)
