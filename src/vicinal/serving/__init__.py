"""The HTTP prediction service: keys, limits, blocks of requests, a console page.

What leaves the process comes from :class:`~vicinal.store.Store`, which charges durably before it
answers. This room adds who may ask, how much at a time, and how requests of the same few
milliseconds share one block and one commit. docs/service.md is its manual, docs/threat-model.md
says what it does not stop. Needs the extra `serve`, but for :mod:`vicinal.serving.keys`.
"""
