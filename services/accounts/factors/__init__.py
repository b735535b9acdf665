"""Second factors, which a person proves in addition to the password."""
