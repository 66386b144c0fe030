"""The wire formats of providers' APIs: requests, answers, streams, failures.

`registry.py` lists the APIs and defines their interface. `openai.py` is the simplest; the others
translate chat completions (`translation.py`). Every API's answer becomes a `Reply` (`reply.py`).
`classify.py` finds the class of a failure: it compares the server's error with the wordings in
`vocabulary.toml`. `failure_classes.py` lists the consequences of each class. `request.py` reads
from any API's request the fields that determine its tokens and cost. `as_chat.py` makes the
messages of such a request readable.
"""
