"""What makes two keys one key: the same secret at the same server."""

from __future__ import annotations

import hashlib
import hmac

from pytest_ultrapar.pool.endpoint import address_of, server_of


def key_identity(url: str, secret: str) -> str:
    """The identity of a key: the same for one key wherever and however often it is listed.

    Two keys with the same secret are one key if they have the same host and port, since a provider
    counts by account and not by path. Servers that need no key are told apart by their whole
    address.

    Args:
        url: Where requests go.
        secret: The key itself, or empty for a server that needs none.

    Returns:
        A keyed digest of 256 bits in hex, from which nothing of the secret can be read.
    """
    where = server_of(url) if secret else address_of(url)
    # The context keeps the digest apart from any other that may be made of the same secret.
    said = f"pytest-ultrapar key lock\n{where}".encode()
    # An environment may hold bytes that are no text; who needs such a key is told so elsewhere.
    return hmac.new(secret.encode(errors="surrogatepass"), said, hashlib.sha256).hexdigest()
