"""`python -m vicinal` is the program `vicinal`."""

from vicinal.cli._main import app

app(prog_name="vicinal")
