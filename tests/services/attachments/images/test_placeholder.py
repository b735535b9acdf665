import pytest
from PIL import Image

from services.attachments.images.encoding import blurhash

_SIZE = (32, 32)
_RAMP = Image.linear_gradient("L").resize(_SIZE)
_DISC = Image.radial_gradient("L").resize(_SIZE)
_FLAT = Image.new("L", _SIZE, 90)


# Made with the reference implementation in C.
@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("RGB", _SIZE, "black"), "L00000fQfQfQfQfQfQfQfQfQfQfQ"),
        (Image.new("RGB", _SIZE, "red"), "L9TI:j|cfQ|c|co1fQo1fQfQfQfQ"),
        (_RAMP.convert("RGB"), "L#HetWoffQof00WBfQWBxuj[fQj["),
        (_DISC.convert("RGB"), "LVHC1Rt7~qxut7fQofj[~qofofof"),
        (Image.merge("RGB", (_RAMP, _DISC, _FLAT)), "L#HejWoegvox2rWpfjWpy7j@fjj@"),
    ],
    ids=["black", "red", "ramp", "disc", "colours"],
)
def test_hash_is_that_of_the_reference_implementation(image: Image.Image, expected: str) -> None:
    assert blurhash(image) == expected
