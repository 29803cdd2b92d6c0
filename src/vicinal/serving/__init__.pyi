from vicinal.serving.server import serve as serve
from vicinal.serving.settings import ServiceSettings as ServiceSettings
