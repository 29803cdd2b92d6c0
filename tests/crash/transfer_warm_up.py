"""Imported once by the process that starts those which are killed: they find all code loaded."""

from crash.transfer_child import warm_up

warm_up()
