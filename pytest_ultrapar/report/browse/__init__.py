"""Runs and their cases in the terminal: `ultrapar show`, `ultrapar runs`, `ultrapar clean`."""
