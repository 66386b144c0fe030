"""The seeds' own concurrency: which key a model takes, and what runs together in which phase.

Written with the public hooks only, `plugin` joins it with pytest; a user could have written each
part in a conftest.
"""
