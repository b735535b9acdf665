import pytest
from PIL import Image

from services.attachments.images.blurhash import compute_blurhash, compute_tiles

_SIZE = (32, 32)
_RAMP = Image.linear_gradient("L").resize(_SIZE)
_DISC = Image.radial_gradient("L").resize(_SIZE)
_FLAT = Image.new("L", _SIZE, 90)


# The expected strings were computed with the reference implementation of BlurHash in C.
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
def test_blurhash_equals_the_reference_implementation(image: Image.Image, expected: str) -> None:
    assert compute_blurhash(image) == expected


def test_placeholder_tiles_show_the_colours_of_their_positions() -> None:
    halves = Image.new("RGB", _SIZE, "#203040")
    halves.paste("#d0c0b0", (16, 0, 32, 32))
    tiles = [
        [bytes.fromhex(tile[1:]) for tile in row]
        for row in compute_tiles(compute_blurhash(halves), 4, 2)
    ]
    for row in tiles:
        assert all(
            abs(level - expected_level) < 40
            for level, expected_level in zip(row[0], b"\x20\x30\x40", strict=True)
        )
        assert all(
            abs(level - expected_level) < 40
            for level, expected_level in zip(row[3], b"\xd0\xc0\xb0", strict=True)
        )
    [[colour]] = compute_tiles(compute_blurhash(Image.new("RGB", _SIZE, "red")), 1, 1)
    assert colour in ("#ff0000", "#fe0000")
