"""Every file that carries a format has format 1, and any other is refused by name."""

import io
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal.distributed.folders import ClusterDescription
from vicinal.errors import InvalidInput, OtherFormat, StorageFailed
from vicinal.labelling import FileJournal, ReleasedLabels, load_answers
from vicinal.labelling.answers import save_answers
from vicinal.labelling.journal import JournalEntry
from vicinal.ledger.sealed_files import seal_archive, write_arrays
from vicinal.serving.keys import KeyFile
from vicinal.store import Store
from vicinal.store.receipts import SigningKey, check_receipt, create_erasure_receipt

REFUSAL = re.compile(r" has format 7; this version of vicinal reads format [12]\.$")


def with_format(path, found=7):
    """Give a JSON file another format; nothing else of it changes."""
    content = json.loads(path.read_text())
    assert content["format"] == 1
    path.write_text(json.dumps({**content, "format": found}))


def arrays_with_format(path, field, current=1):
    """Give a file of arrays of the `current` format another one, in the JSON of one of them."""
    with np.load(path) as stored:
        arrays = dict(stored)
    content = json.loads(str(arrays[field]))
    assert content["format"] == current
    arrays[field] = np.array(json.dumps({**content, "format": 7}))
    write_arrays(path, arrays)


def of_store(path):
    tools.make(path).close()
    with_format(path / "store.json")
    return lambda: Store.open(path)


def of_backup(path):
    with tools.make(path) as store:
        store.backup(path.with_name("backup"))
    with_format(path.with_name("backup") / "store.json")
    return lambda: Store.restore(path.with_name("backup"), path.with_name("new"))


def of_ledger(path):
    with tools.make(path) as store:
        store._store.database.put("format", "7")
        store._store.report_change()
    return lambda: Store.open(path)


def of_witness(path):
    tools.make(path).close()
    witness = path.with_name("store.witness")
    content = witness.read_bytes()
    assert content[15] == 1
    witness.write_bytes(content[:15] + b"\7" + content[16:])
    return lambda: Store.open(path, accept_loss=True)


def of_cluster(path):
    cluster = shard_tools.clustered(path.parent, 1)
    with_format(cluster / "cluster.json")
    return lambda: ClusterDescription.read(cluster)


def of_shard(path):
    cluster = shard_tools.clustered(path.parent, 1)
    with_format(cluster / "coordinator" / "shard.json")
    return lambda: shard_tools.local(cluster)


def of_receipt(path):
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra `receipts`)")
    key = SigningKey.create(path.with_name("signing"))
    with tools.make(path) as store:
        store.erase([tools.PEOPLE[0]])
        receipt = create_erasure_receipt(store._store, [tools.PEOPLE[0]], key)
    assert receipt["format"] == 1
    content = {name: value for name, value in receipt.items() if name != "signature"}
    signed = key.sign({**content, "format": 7})
    return lambda: check_receipt(signed, receipt["public_key"])


def of_journal(path):
    with FileJournal(path) as journal:
        journal.commit(JournalEntry("run", (), {}))
    arrays_with_format(path / "journal.npz", "head")
    return lambda: FileJournal(path).read()


def of_answers(path):
    rows, selected = np.arange(2), np.ones(2, dtype=bool)
    save_answers(ReleasedLabels(rows, rows, None, selected, (0, 1), {}), path)
    arrays_with_format(path, "about", current=2)
    return lambda: load_answers(path)


def of_student(path):
    torch = pytest.importorskip("torch", reason="torch is not installed (extra `students`)")
    from vicinal import students
    from vicinal.students import student

    images = SimpleNamespace(shape=(8, 8), mean=(0.0,), deviation=(1.0,))
    untrained = {"name": "mlp", "classes": (0, 1), "preprocessing": images, "guarantee": {}}
    untrained |= {"largest_inputs": (), "second": None, "extractor": None}
    about = student.describe_student(SimpleNamespace(**untrained))
    assert about["format"] == 1
    content = io.BytesIO()
    torch.save({"about": json.dumps({**about, "format": 7})}, content)
    path.write_bytes(seal_archive(content.getvalue()))
    return lambda: students.load(path)


WRITERS = [
    of_store, of_backup, of_ledger, of_witness, of_cluster, of_shard, of_receipt, of_journal,
    of_answers, of_student,
]  # fmt: skip


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_file_of_another_format_is_refused_by_name(tmp_path, write):
    opened = write(tmp_path / "store")
    with pytest.raises(OtherFormat, match=REFUSAL) as caught:
        opened()
    assert isinstance(caught.value, InvalidInput)


def test_keys_of_another_format_let_nobody_in(tmp_path):
    tools.make(tmp_path / "store").close()
    keys = KeyFile(tmp_path / "store")
    keys.add("somebody", "analyst", "default")
    with_format(keys.path)
    with pytest.raises(StorageFailed, match=REFUSAL):
        keys.load_keys()


@pytest.mark.parametrize("found", [0, 2, "1", 1.0, True, None])
def test_nothing_but_the_number_is_format_one(tmp_path, found):
    tools.make(tmp_path / "store").close()
    with_format(tmp_path / "store" / "store.json", found)
    with pytest.raises(OtherFormat, match="this version of vicinal reads format 1"):
        Store.open(tmp_path / "store")
