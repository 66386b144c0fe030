"""The wire formats of providers' APIs: requests, answers, streams, failures.

`registry.py` lists the APIs and defines their interface. `openai.py` implements the simplest one.
Modules for other formats translate chat completions (`translation.py`). Every API's answer becomes
a `Reply` (`reply.py`). `classify.py` finds the class of a failure: it compares the server's error
with the wordings in `vocabulary.toml`. `failure_classes.py` lists the consequences of each class.
`request.py` reads the fields that determine a request's tokens and cost, for any API. `as_chat.py`
rewrites a request's messages, so that people can read them.
"""
