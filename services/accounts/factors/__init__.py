"""Second factors, with which a person logs in in addition to the password."""
