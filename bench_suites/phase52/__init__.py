"""Phase 5.2."""
