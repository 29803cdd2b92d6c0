"""The HTTP prediction service: API keys, limits, batching of requests, and a console page.

All answers come from :class:`~vicinal.store.Store`, which charges durably before it answers. The
service is a Starlette application on uvicorn (docs/decisions/0047-service.md); its manual is
service.md, its limits of protection are in threat-model.md. It requires the extra `serve`.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
