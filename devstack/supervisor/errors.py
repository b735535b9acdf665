class StackError(Exception):
    """The stack cannot start or has failed. The message is shown as it is.

    Attributes:
        exit_code: what the command ends with: 2 for a mistake in the settings, 1 for a failure.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
