"""Check which lanes of a pool answer: `ultrapar check`, and `--ultrapar-check` before a run."""
