"""How a query or a form, which have nothing but text, say true and false."""

BOOLEAN_WORDS = {"1": True, "true": True, "0": False, "false": False}


def boolean_of(value: object) -> bool | None:
    """``None`` for any other word; letters of either case count."""
    return BOOLEAN_WORDS.get(str(value).lower())
