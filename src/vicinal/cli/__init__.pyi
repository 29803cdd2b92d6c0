__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.cli._audit import read_audit as read_audit
from vicinal.cli._labelling import Overlapping as Overlapping
from vicinal.cli._main import PLAIN as PLAIN
from vicinal.cli._main import CommandGroup as CommandGroup
from vicinal.cli._main import Commands as Commands
from vicinal.cli._main import app as app
from vicinal.cli._options import Epsilon as Epsilon
from vicinal.cli._options import Json as Json
from vicinal.cli._output import as_json as as_json
from vicinal.cli._output import output_folder as output_folder
from vicinal.cli._output import progress as progress
from vicinal.cli._output import write_file as write_file
from vicinal.cli._records import listed_ids as listed_ids
