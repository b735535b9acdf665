from services.accounts import passwords
from tests.support.people.visiting import PASSWORD
from tests.support.stack.cheap_passwords import thorough_hashes

# argon2id with 64 MiB, which RFC 9106 recommends second.
PARAMETERS = "$argon2id$v=19$m=65536,t=3,p=4$"


def test_password_hashes_use_argon2id_parameters_recommended_by_rfc_9106() -> None:
    with thorough_hashes():
        assert passwords.hash_password(PASSWORD).startswith(PARAMETERS)
