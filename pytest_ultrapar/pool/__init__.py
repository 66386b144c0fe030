"""What there is to run on: `pool.toml` as validated, immutable data.

`config.py` makes a `Pool` (`model.py`) of a file and the environment. A setting is a row of
`settings.py`. `limits.py` names limits and the path on which each lane lies; `money.py` and
`price_book.py` have prices, `secret.py` and `keys.py` keys.
"""
