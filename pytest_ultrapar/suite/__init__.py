"""A suite in pytest: items become cases, cases run ahead, and what comes of them is reported."""
