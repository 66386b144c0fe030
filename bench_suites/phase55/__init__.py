"""Phase 5.5."""
