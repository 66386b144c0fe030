"""Run LLM evaluations in pytest as fast as a pool of API keys allows, and never faster."""
