"""The queries of the paper "CORE: a Complex Event Recognition Engine" (VLDB 2022).

`figure` has the three queries of its first figure (a parenthesis of the third is corrected). `stocks`,
`smart_homes` and `taxis` have the queries of its evaluation. `stocks/s3` is the paper's S3,
`stocks/s3_no_output` its S3', which needs one more event that never occurs. Each declares the types it reads.
"""

from __future__ import annotations

from importlib import resources


def names() -> list[str]:
    """Return the names of all queries.

    >>> [name for name in names() if name.startswith("figure/")]
    ['figure/q1', 'figure/q2', 'figure/q3']
    """
    folders = [folder for folder in resources.files(__name__).iterdir() if folder.is_dir()]
    files = [(folder.name, file.name) for folder in folders for file in folder.iterdir()]
    return sorted(f"{folder}/{name.removesuffix('.ceql')}" for folder, name in files if name.endswith(".ceql"))


def query(name: str) -> str:
    """Return the text of a query; KeyError if no query has that name.

    >>> print(query("stocks/s3").splitlines()[-1])
    WITHIN 10000 [stock_time]
    """
    file = resources.files(__name__).joinpath(f"{name}.ceql")
    if not file.is_file():
        raise KeyError(f"the paper has no query '{name}': choose one of {', '.join(names())}")
    return file.read_text(encoding="utf-8")
