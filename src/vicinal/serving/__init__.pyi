from vicinal.serving._server import serve as serve
from vicinal.serving._settings import ServiceSettings as ServiceSettings

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.serving._app import checked_ids as checked_ids
from vicinal.serving._app import create_app as create_app
from vicinal.serving._app import openapi as openapi
from vicinal.serving._keys import ROLES as ROLES
from vicinal.serving._keys import KeyCache as KeyCache
from vicinal.serving._keys import KeyFile as KeyFile
from vicinal.serving._local_socket import ServedStore as ServedStore
from vicinal.serving._models import AnswersResponse as AnswersResponse
from vicinal.serving._models import PredictRequest as PredictRequest
from vicinal.serving._models import decode_rows as decode_rows
from vicinal.serving._server import server_of as server_of
