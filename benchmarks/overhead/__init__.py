"""Cases that measure only the tool."""
