"""Figures of a campaign's records (benchmarks.h200.tables): where a pass's time goes."""

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from labkit.figures.theme import new, series

if TYPE_CHECKING:
    import pandas as pd

_HATCH = ("", "/", "\\", "x", "-", "|", "+", ".")


def pass_time(
    table: "pd.DataFrame", *, title: str = "Where the time of one pass goes", y: str = "ms per pass ● measured"
) -> go.Figure:
    """Stacked milliseconds of kernel time by group of kernels, one bar per profiled server.

    table: rows are groups, columns are servers, values in ms (benchmarks.h200.tables.profile_table).
    """
    figure = new(
        title,
        y=y,
        alt="; ".join(
            f"{server}: " + ", ".join(f"{g} {v:.2f} ms" for g, v in table[server].items() if v >= 0.005)
            for server in table
        )
        + ".",
        barmode="stack",
    )
    for i, group in enumerate(table.index):
        figure.add_bar(
            x=list(table.columns),
            y=[float(v) for v in table.loc[group]],
            name=group,
            marker=dict(color=series(i).colour, pattern_shape=_HATCH[(i // 6) % len(_HATCH)]),
            hovertemplate=f"{group}: %{{y:.3f}} ms<extra>%{{x}}</extra>",
        )
    return figure
