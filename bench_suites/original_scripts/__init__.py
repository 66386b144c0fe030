"""The concurrency of the original scripts: each model's key, and which processes run in parallel.

This package uses only public hooks: you could write each part in a conftest. `plugin` registers it
with pytest.
"""
