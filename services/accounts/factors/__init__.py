"""Second factors: what a person shows beside their password, or instead of it by a passkey."""
