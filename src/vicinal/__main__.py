"""`python -m vicinal` is the program `vicinal`."""

from vicinal.cli.main import app

app(prog_name="vicinal")
