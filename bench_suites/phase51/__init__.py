"""Phase 5.1."""
