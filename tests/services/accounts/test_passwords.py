from services.accounts import passwords
from tests.cheap_passwords import thorough_hashes
from tests.visiting import PASSWORD

# argon2id with 64 MiB, which RFC 9106 recommends second.
PARAMETERS = "$argon2id$v=19$m=65536,t=3,p=4$"


def test_the_product_hashes_as_rfc_9106_recommends() -> None:
    with thorough_hashes():
        assert passwords.make(PASSWORD).startswith(PARAMETERS)


def test_the_product_replaces_a_cheap_hash_once_it_sees_the_password() -> None:
    cheap = passwords.make(PASSWORD)
    assert not cheap.startswith(PARAMETERS)
    with thorough_hashes():
        assert passwords.verify(cheap, "not the password").renewed is None
        check = passwords.verify(cheap, PASSWORD)
        assert check.renewed is not None
        assert check.renewed.startswith(PARAMETERS)
        assert passwords.verify(check.renewed, PASSWORD) == passwords.PasswordCheck(matches=True)
