"""Errors that real providers give, by name: status, and the words that tell one 429 from another.

Source: the codes and types of OpenAI's and Azure's error documents; the sentences are our own.
"""

from __future__ import annotations

from pytest_ultrapar.simulator.api_error import ApiError

KNOWN_ERRORS: dict[str, ApiError] = {
    "rate_limit_exceeded": ApiError(
        429, "Rate limit reached: too many requests", "rate_limit_exceeded", retry_after_s=1.0
    ),
    "tokens_per_minute": ApiError(
        429,
        "Rate limit reached on tokens per min (TPM)",
        "rate_limit_exceeded",
        retry_after_s=1.0,
        kind="tokens",
    ),
    "requests_per_day": ApiError(
        429,
        "Rate limit reached on requests per day (RPD)",
        "rate_limit_exceeded",
        retry_after_s=3600.0,
    ),
    "tokens_per_day": ApiError(
        429,
        "Rate limit reached on tokens per day (TPD)",
        "rate_limit_exceeded",
        retry_after_s=3600.0,
        kind="tokens",
    ),
    "insufficient_quota": ApiError(
        429,
        "The quota of this key is used up; see its plan and billing",
        "insufficient_quota",
        kind="insufficient_quota",
    ),
    "payment_required": ApiError(402, "This account has no credit left", "insufficient_quota"),
    "invalid_api_key": ApiError(401, "Incorrect API key provided", "invalid_api_key"),
    "permission_denied": ApiError(403, "This key may not use this model", "permission_denied"),
    "model_not_found": ApiError(404, "The model does not exist", "model_not_found"),
    "DeploymentNotFound": ApiError(
        404, "The API deployment for this resource does not exist", "DeploymentNotFound"
    ),
    "context_length_exceeded": ApiError(
        400,
        "The messages are longer than this model's context",
        "context_length_exceeded",
        param="messages",
    ),
    "content_filter": ApiError(
        400, "The prompt was stopped by the content filter", "content_filter", param="prompt"
    ),
    "unsupported_parameter": ApiError(
        400,
        "'max_tokens' is not supported with this model; use 'max_completion_tokens' instead",
        "unsupported_parameter",
        param="max_tokens",
    ),
    "server_error": ApiError(500, "The server had an error", "server_error"),
    "bad_gateway": ApiError(502, "Bad gateway"),
    "overloaded": ApiError(503, "The engine is overloaded", "overloaded"),
    "gateway_timeout": ApiError(504, "The server did not answer in time"),
}
