"""Runs and cases in a terminal: `ultrapar runs`, `ultrapar show`, `ultrapar clean`."""
