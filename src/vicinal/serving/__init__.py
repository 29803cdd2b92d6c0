"""The HTTP prediction service: keys, limits, blocks of requests, a console page.

What leaves the process comes from :class:`~vicinal.store.Store`, which charges durably before it
answers. This package adds who may ask, how much at a time, and how requests of the same few
milliseconds share one block and one commit. It is a Starlette application on uvicorn
(docs/decisions/0047-service.md). service.md is its manual, threat-model.md
says what it does not stop. Serving needs the extra `serve`; keys and settings do not.
"""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
