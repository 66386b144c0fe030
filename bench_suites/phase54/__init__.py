"""Phase 5.4."""
