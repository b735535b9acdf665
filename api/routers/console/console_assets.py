from pathlib import PurePath

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import UNLIMITED
from api.console.assets import ASSETS_BY_SERVED_NAME, ASSETS_PATH, asset_path
from core.refusals.requests import ROUTE_NOT_FOUND

# No operation of the API, so not in its document.
router = APIRouter(dependencies=[UNLIMITED], include_in_schema=False)

_FOR_A_YEAR = "public, max-age=31536000, immutable"


@router.get(f"{ASSETS_PATH}/{{name}}")
async def serve_asset(name: str) -> Response:
    """A style or script, which a browser keeps.

    While releases change, a page may ask a process of the other release, which has another file
    under that name: it gives its own, and no browser keeps it.
    """
    found = ASSETS_BY_SERVED_NAME.get(name)
    kept = _FOR_A_YEAR
    if found is None:
        path = PurePath(name)
        try:
            own = asset_path(f"{path.stem.partition('.')[0]}{path.suffix}")
        except KeyError:
            raise ROUTE_NOT_FOUND() from None
        found, kept = ASSETS_BY_SERVED_NAME[PurePath(own).name], "no-store"
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": kept})
