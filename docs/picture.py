"""Draws the requests of a finished run: `python docs/picture.py RUN > docs/run.svg`."""

from __future__ import annotations

import heapq
import sys
from collections import defaultdict
from html import escape
from pathlib import Path

import pyarrow.parquet as pq

LEFT, WIDTH, SEAT, GAP, TOP = 96, 860, 7, 26, 94
COLOURS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5"]


def seats(spans: list[tuple[float, float, str]]) -> list[tuple[int, float, float, str]]:
    """Place each request on the lowest seat that is free when it is sent."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    placed = []
    for start, end, model in sorted(spans):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        seat = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, seat))
        placed.append((seat, start, end, model))
    return placed


def svg(run: Path) -> str:
    """The picture as SVG text."""
    table = pq.read_table(run / "results.parquet")
    simulated = (table.schema.metadata or {}).get(b"ultrapar.simulated") == b"true"
    cases = {row["case_id"]: row for row in table.to_pylist()}
    attempts = pq.read_table(run / "attempts.parquet").to_pylist()
    begin = min(row["t_send_s"] for row in attempts)
    length = max(row["t_end_s"] for row in attempts) - begin
    one_by_one = sum(row["service_s"] or 0 for row in cases.values())
    models = sorted({row["model"] for row in cases.values()})
    colour = dict(zip(models, COLOURS, strict=False))
    of_key: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for row in attempts:
        name = row["key"] if row["key"] == row["provider"] else f"{row['provider']}/{row['key']}"
        of_key[name].append(
            (row["t_send_s"] - begin, row["t_end_s"] - begin, cases[row["case_id"]]["model"])
        )
    scale = WIDTH / length
    parts: list[str] = []
    y = TOP
    for name, spans in sorted(of_key.items()):
        placed = seats(spans)
        n_seats = 1 + max(seat for seat, *_ in placed)
        paths: dict[str, str] = defaultdict(str)
        for seat, start, end, model in placed:
            x, width = LEFT + start * scale, max((end - start) * scale - 0.6, 0.6)
            paths[model] += f"M{x:.1f} {y + seat * SEAT}h{width:.1f}v{SEAT - 1}h-{width:.1f}z"
        at = f'text-anchor="end" x="{LEFT - 8}" y'
        middle = y + n_seats * SEAT / 2
        parts.append(f'<text {at}="{middle}">{escape(name)}</text>')
        parts.append(f'<text {at}="{middle + 13}" fill="#777">{n_seats} in flight</text>')
        parts += [
            f'<path fill="{colour[model]}" d="{path}"/>' for model, path in sorted(paths.items())
        ]
        y += n_seats * SEAT + GAP
    for second in range(0, int(length) + 1, max(1, round(length / 10))):
        x = LEFT + second * scale
        parts.append(
            f'<text x="{x:.1f}" y="{y}" text-anchor="middle" fill="#777">{second} s</text>'
        )
    for at, model in enumerate(models):
        x, row = LEFT + at % 4 * 215, 56 + at // 4 * 17
        parts.append(f'<rect x="{x}" y="{row - 9}" width="10" height="10" fill="{colour[model]}"/>')
        parts.append(f'<text x="{x + 15}" y="{row}">{escape(model)}</text>')
    title = (
        f"{'SIMULATED: ' if simulated else ''}{len(cases)} conversations, "
        f"{len(attempts)} requests in {length:.1f} s; "
        f"one at a time about {one_by_one:.0f} s (sum of their times)"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {y + 12}" '
        f'font-family="sans-serif" font-size="11"><title>{escape(title)}</title>'
        '<rect width="100%" height="100%" fill="#fff"/>'
    )
    legend = (
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>'
        f'<text x="{LEFT}" y="36" fill="#777">'
        "Each bar is a request, and each row a seat of the key</text>"
    )
    return head + legend + "".join(parts) + "</svg>\n"


if __name__ == "__main__":
    sys.stdout.write(svg(Path(sys.argv[1])))
