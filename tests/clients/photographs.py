import io

from tests.pictures import photo


class PhotoFile(io.BytesIO):
    """An open file with a photograph, which has a name as an image must."""

    name = "photo.jpg"

    def __init__(self) -> None:
        super().__init__(photo())
