"""Check which lanes of a pool answer: with `ultrapar check`, or `--ultrapar-check` before a run."""
