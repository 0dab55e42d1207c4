"""Published results, as they were printed: what a prediction is held against."""

import csv
from functools import cache
from pathlib import Path

TABLES = Path(__file__).parent / "tables"
SOURCES = {
    "zero_bubble_tables": "Qi et al. 2023, arXiv:2401.10241, appendix: measured durations, and rates of Table 5",
    "torchgpipe_amoebanet_speed": "torchgpipe's benchmark page, AmoebaNet-D (18, 256) on Tesla P40s; the last column: "
    "Huang et al. 2019, arXiv:1811.06965, table 2",
}


@cache
def published(table: str) -> tuple[dict, ...]:
    """The rows of a printed table, numbers as numbers.

    raises  ValueError when there is no such table

    >>> published("zero_bubble_tables")[0]["rate_ZB_H1"]
    0.1585
    """
    if table not in SOURCES:
        raise ValueError(f"there is no table {table!r}: choose one of {', '.join(SOURCES)}")
    with open(TABLES / f"{table}.csv", newline="") as file:
        return tuple({name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(file))


def _number(cell: str):
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell
