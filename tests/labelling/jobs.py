"""Helpers of the labelling tests: a run that labels a pool without feature extraction."""

from vicinal import labelling
from vicinal.labelling import FileJournal, LabellingTask


class Raw:
    def transform(self, examples):
        return examples


def silent(_name, _size):
    return lambda _done: None


def labelled(world, folder, labeller, plan, records=None):
    """Return the answers to one round and the indices of the selected ones."""
    job = LabellingTask(world[0] if records is None else records, world[2], Raw())
    with FileJournal(folder) as journal:
        return labelling.label(job, labeller, plan, journal, silent)
