import core  # noqa: F401 - before any library, as its first lines say
