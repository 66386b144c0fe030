"""The concurrency of the original scripts: the key of each model, and the processes in parallel.

This package uses only public hooks: you could write each part in a conftest. `plugin` registers it
with pytest.
"""
