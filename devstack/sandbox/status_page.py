"""How the stack does now: a small page with plots of the last minutes."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from devstack.sandbox.status_figures import (
    FIGURES,
    LOOK_EVERY_SECONDS,
    Figure,
    StatusFigures,
)
from devstack.sandbox.templates import render

PATH = "/status"
WIDTH, HEIGHT = 240, 48
_SMALL, _LARGE = 10, 1000


def make_router(figures: StatusFigures) -> APIRouter:
    router = APIRouter()

    @router.get(PATH, response_class=HTMLResponse)
    async def status() -> str:
        await figures.look()
        plots = [_plot(each, figures.values(each)) for each in FIGURES]
        return render(
            "status.html",
            up=figures.up(),
            plots=plots,
            every=int(LOOK_EVERY_SECONDS * 1000),
            width=WIDTH,
            height=HEIGHT,
            is_watched=bool(figures.sources),
        )

    return router


def _plot(figure: Figure, values: list[float]) -> dict[str, str]:
    top = max(values, default=0.0) or 1.0
    step = WIDTH / max(len(values) - 1, 1)
    points = [
        f"{number * step:.1f},{HEIGHT - 2 - value / top * (HEIGHT - 4):.1f}"
        for number, value in enumerate(values)
    ]
    return {
        "name": figure.name,
        "unit": figure.unit,
        "now": _shown(values[-1]) if values else "–",
        "top": _shown(max(values)) if values else "–",
        "points": " ".join(points),
    }


def _shown(value: float) -> str:
    """With as many digits as tell something."""
    if value == int(value) and value < _LARGE:
        return f"{value:.0f}"
    return f"{value:.3g}" if value < _SMALL else f"{value:,.0f}"
