"""The resources of a run: `pool.toml` as validated, immutable data.

`load_pool.py` makes a `Pool` (`model.py`) from a file and the environment. `settings.py` has a row
for each setting. `limits.py` names the limits and the path of limits of each lane. `money.py` and
`price_book.py` have the prices, `secret.py` and `keys.py` the keys.
"""
