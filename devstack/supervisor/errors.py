"""What keeps the stack from starting, said in a sentence a person can act on."""


class StackError(Exception):
    """The stack cannot start or has failed; the text is shown as it is.

    Attributes:
        exit_code: what the command ends with; 2 is a mistake in the settings, 1 a failure.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
