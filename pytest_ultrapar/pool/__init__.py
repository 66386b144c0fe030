"""The resources of a run: `pool.toml` as validated, immutable data.

`load_pool.py` makes a `Pool` (`model.py`) from a file and the environment. `settings.py` contains a
table of all settings. `limits.py` names the limits and lists those that apply to each lane.
`money.py` and `price_book.py` handle prices; `secret.py` and `keys.py` handle keys.
"""
