"""Students: networks, VAT, UDA, training under a seed, exact features, files, ONNX."""

import errno
import importlib
import io
import json
import os
import sys
from dataclasses import replace
from inspect import unwrap

import numpy as np
import pytest
from sklearn.datasets import load_digits

from made_up import raising
from vicinal.errors import InvalidInput, OutputFailed
from vicinal.features import HOGFeatures
from vicinal.ledger.sealed_files import seal_archive


class LazyModule:
    """A module whose public names are imported at their first use, as torch loads in a second."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith("_"):  # pytest asks for such marks while it collects
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


torch = LazyModule("torch")
students = LazyModule("vicinal.students")
exact_networks = LazyModule("vicinal.students._exact")
networks = LazyModule("vicinal.students._networks")
training = LazyModule("vicinal.students.training")

SHAPES = dict.fromkeys(("small", "deep"), (1, 28, 28)) | {"mlp": (12,), "wide": (12,)}
METHODS = ["plain", "vat", "uda"]
AUGMENTATIONS = ["digits", "clothes"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Synchronisation of several threads takes longer than the work on small batches."""
    pytest.importorskip("torch", reason="students need the extra 'students'")
    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(previous)


@pytest.fixture(scope="module")
def digits():
    """Images (n, 8, 8) of ten digits with their labels: small, and real."""
    data = load_digits()
    return data.images.astype(np.float32), data.target


def recipe(**options):
    defaults = {"method": "plain", "steps": 60, "labelled": 32, "unlabelled": 32, "average": 0.9}
    return students.Recipe(**{**defaults, **options})


def measure_accuracy(digits, n_answers, how, soft=None):
    """Return the accuracy on images from 500 of a student of the first `n_answers` answers."""
    images, labels = digits
    rows = np.arange(n_answers)
    student = students.train_student(images, rows, labels[rows], range(10), how, None, soft)
    return (student.predict(images[500:]) == labels[500:]).mean()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def trained(digits):
    images, labels = digits
    rows = np.arange(300)
    return students.train_student(images, rows, labels[rows], range(10), recipe(steps=5))


def test_all_networks_methods_and_augmentations_are_tested():
    assert set(SHAPES) == set(networks.NETWORKS)
    assert set(METHODS) == set(training.METHODS)
    assert set(AUGMENTATIONS) == set(training.AUGMENTATIONS)


def test_soft_labels_help_where_answers_are_few(digits):
    labels = digits[1]
    soft = np.full((len(labels), 10), 0.02, dtype=np.float32)
    soft[np.arange(len(labels)), labels] = 0.82
    how = recipe(method="uda", augmentation="digits", steps=60, sure=0.0, sharpness=1.0)
    without, with_soft = (
        measure_accuracy(digits, 25, replace(how, soft_share=share), soft) for share in (0.0, 0.7)
    )
    assert with_soft > max(without + 0.05, 0.65)


@pytest.mark.parametrize(
    "broken",
    [
        lambda _: None, lambda soft: soft[:3], lambda soft: np.hstack([soft, 0 * soft[:, :1]]),
        lambda soft: soft * np.nan, lambda soft: -soft, lambda soft: soft.argmax(axis=1),
        lambda soft: soft + 0.1 * (np.arange(len(soft)) == 3)[:, None],
    ],
)  # fmt: skip
def test_soft_labels_must_be_distributions_over_the_classes(digits, broken):
    images, labels = digits
    how = recipe(method="uda", augmentation="digits", soft_share=0.5)
    soft = broken(np.full((len(images), 10), 0.1))
    with pytest.raises(InvalidInput, match="soft"):
        students.train_student(images, np.arange(9), labels[:9], range(10), how, soft_labels=soft)


def test_unlabelled_examples_help(digits):
    """VAT's students of 40 answers are more accurate than those without unlabelled examples."""
    how = recipe(method="plain", steps=100, unlabelled=64)
    without, with_unlabelled = (
        measure_accuracy(digits, 40, replace(how, method=method)) for method in ("plain", "vat")
    )
    assert with_unlabelled > without + 0.03 > 0.7


def test_less_trust_in_answers_repeats_fewer_wrong_ones(digits):
    images, labels = digits
    vectors, rows = images[:500].reshape(500, -1), np.arange(500)
    noisy = labels[rows].copy()
    wrong = np.random.default_rng(0).permutation(500)[:100]
    noisy[wrong] = (noisy[wrong] + 1) % 10
    repeated = []
    for trust in (0.3, 1.0):
        how = recipe(network="mlp", steps=200, trust=trust)
        student = students.train_student(vectors, rows, noisy, range(10), how)
        repeated.append((student.predict(vectors[wrong]) == noisy[wrong]).mean())
    assert repeated[0] < repeated[1] - 0.05


@pytest.mark.parametrize("method", METHODS)
def test_training_repeats_bit_for_bit_under_a_seed(digits, method):
    images, labels = digits
    rows = np.arange(100)
    state = torch.random.get_rng_state()

    def weights(seed):
        how = recipe(method=method, augmentation="digits", steps=3, seed=seed, network="small")
        student = students.train_student(images, rows, labels[rows], range(10), how)
        return torch.cat([value.flatten().float() for value in student.network.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator's state changed"


@pytest.mark.parametrize(
    "options",
    [
        {"method": "gan"}, {"network": "resnet"}, {"augmentation": "words"}, {"method": "uda"},
        {"steps": 0}, {"rate": np.nan}, {"rate": 0}, {"reach": np.inf}, {"trust": 1.1},
        {"sure": -0.1}, {"sharpness": 0}, {"seed": -1}, {"labelled": 1},
        {"method": "vat", "soft_share": 0.5}, {"method": "vat", "network": "kernel"},
    ],
)  # fmt: skip
def test_bad_recipes_are_refused(options):
    with pytest.raises(InvalidInput):
        students.Recipe(**{"method": "plain", **options})


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([0], [1]), ([0, 1], [1]), ([0, 9999], [1, 2]), ([-1, 1], [1, 2]), ([0, 1], [1, 11]),
        ([0.5, 1], [1, 2]),
    ],
)  # fmt: skip
def test_answers_that_do_not_fit_are_refused(digits, rows, labels):
    with pytest.raises(InvalidInput):
        students.train_student(digits[0], np.array(rows), labels, range(10), recipe(steps=1))


def test_examples_of_another_shape_or_type_are_refused(digits, trained):
    for examples in (digits[0][:, :7], digits[0][:0], np.array(["a"])):
        for method in (trained.predict, trained.transform):
            with pytest.raises(InvalidInput):
                method(examples)


# VAT and UDA.


def test_the_push_finds_the_one_direction_that_matters():
    seen = []

    def model(examples):
        seen.append(examples)
        return torch.stack([5 * examples[:, 0], torch.zeros(len(examples))], dim=1)

    examples = torch.randn(10, 8)
    training.compute_adversarial_loss(model, examples, 2.0, generator())
    push = seen[-1].detach() - examples
    assert torch.allclose(push[:, 0].abs(), torch.full((10,), 2.0), atol=1e-4)
    assert push[:, 1:].abs().max() < 1e-3


def test_pushed_examples_do_not_enter_running_statistics(digits):
    """After one step of VAT, statistics are those of the labelled examples alone."""
    images, labels = digits
    means = []
    for method in ("plain", "vat"):
        how = recipe(method=method, steps=1, average=0.0, unlabelled=64)
        student = students.train_student(images, np.arange(40), labels[:40], range(10), how)
        layers = [m for m in student.network.modules() if hasattr(m, "running_mean")]
        assert all(layer.momentum == 0.1 for layer in layers)
        means.append(torch.cat([layer.running_mean for layer in layers]))
    assert torch.allclose(means[0], means[1], atol=1e-2)
    assert means[0].abs().max() > 0.01


def test_divergence_is_that_of_kullback_and_leibler():
    target, predicted = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
    expected = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert float(training.compute_divergence(target, predicted.log())) == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations_repeat_under_a_seed_and_differ_between_images(name):
    image = torch.randn(1, 1, 28, 28).expand(6, 1, 28, 28)
    changed = training.AUGMENTATIONS[name](image, generator(3))
    assert torch.equal(changed, training.AUGMENTATIONS[name](image, generator(3)))
    assert not torch.allclose(changed[0], changed[1], atol=1e-2)
    assert torch.isfinite(changed).all()


def test_each_change_is_what_it_is_called():
    square = torch.zeros(400, 1, 21, 21)
    square[:, :, 8:13, 8:13] = 1.0
    offsets = torch.arange(21.0) - 10
    moved = training.Augmentation(shift=0.2)(square, generator())
    centres = (moved.sum(dim=(1, 2)) * offsets).sum(1) / moved.sum(dim=(1, 2, 3))
    assert 3.3 < centres.abs().max() <= 0.2 * 21 + 0.1
    sizes = training.Augmentation(zoom=0.3)(square, generator()).sum(dim=(1, 2, 3)) / 25
    assert sizes.min() < 0.75
    assert sizes.max() > 1.4
    bar = torch.zeros(400, 1, 21, 21)
    bar[:, :, 10, :5] = 1.0
    mirrored = training.Augmentation(mirror=True)(bar, generator())[:, 0, 10, 18] > 0.5
    assert 0.4 < float(mirrored.float().mean()) < 0.6
    cut = training.Augmentation(cut=0.4)(torch.ones(50, 1, 20, 20), generator())
    assert 1 / 25 <= float((cut == 0).float().mean()) <= 4 / 25
    assert training.DIGITS.mirror is False, "a mirrored digit is another one"


# Exact features.


@pytest.mark.parametrize("name", SHAPES)
def test_features_are_the_same_in_any_company(name):
    torch.manual_seed(1)
    network = networks.build_network(name, SHAPES[name], 10)
    examples = torch.randn(28, *SHAPES[name])
    for _ in range(3):
        network(examples)  # changes the running statistics
    network.eval()
    exact = exact_networks.ExactBody(
        network.body, exact_networks.measure_largest_inputs(network.body, examples)
    )
    with torch.no_grad():
        batched = exact(examples)
        order = torch.randperm(28)
        assert torch.equal(exact(examples[order]), batched[order])
        single = torch.cat([exact(examples[i : i + 1]) for i in range(0, 28, 9)])
        assert torch.equal(single, batched[::9])
        plain = network.body(examples)
    assert float((batched - plain).norm() / plain.norm()) < 0.05


def test_sums_are_exact_at_the_worst_inputs():
    """The bound on weights holds where every input has the largest magnitude."""
    from vicinal.students._exact import _QuantizedLayer

    torch.manual_seed(2)
    network = networks.build_network("small", (1, 28, 28), 10).eval()
    exact = exact_networks.ExactBody(
        network.body,
        exact_networks.measure_largest_inputs(network.body, torch.randn(20, 1, 28, 28)),
    )
    quantized = [layer for layer in exact._layers if isinstance(layer, _QuantizedLayer)]
    assert len(quantized) == 8
    shapes = [(1, 28, 28), (32, 14, 14), (32, 14, 14), (64, 14, 14), (64, 7, 7), (128, 7, 7)]
    for layer, shape in zip(quantized, [*shapes, (1152,), (128,)], strict=True):
        signs = torch.randint(0, 2, (4, *shape)).float() * 2 - 1
        worst = signs * layer.levels
        single = layer.compute_sums(worst.clone())
        assert torch.equal(single, single.round())
        assert float(single.abs().max()) <= 2**24
        values = [cell.cell_contents for cell in layer.compute_sums.__closure__]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        assert all(torch.equal(value, value.round()) for value in tensors)


# Files.

GUARANTEE = {"epsilon": 0.47, "delta": 1e-5, "text": "(0.47, 1e-05)-differential privacy"}


def test_a_student_comes_back_from_its_file_with_its_guarantee(
    tmp_path, digits, trained, taught, pair, vectors_pair
):
    """Students of images and of vectors, single and in an ensemble."""
    cases = [(digits[0], trained), (taught[1], taught[3]), (pair[0], pair[2])]
    for examples, student in (*cases, (vectors_pair[0], vectors_pair[3])):
        students.save(replace(student, guarantee=GUARANTEE), tmp_path / "student.pt")
        read = students.load(tmp_path / "student.pt")
        for answers in ("predict_proba", "transform"):
            expected = getattr(student, answers)(examples[:50])
            np.testing.assert_array_equal(getattr(read, answers)(examples[:50]), expected)
        assert (read.guarantee, read.classes) == (GUARANTEE, student.classes)


@pytest.mark.parametrize("save", ["save", "save_onnx"])
def test_a_failure_keeps_the_earlier_file(tmp_path, monkeypatch, trained, save):
    """Fails if a file is written in place, so that a full disk leaves a part of it."""
    path = tmp_path / "student"
    path.write_bytes(b"earlier")
    monkeypatch.setattr(os, "replace", raising(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OutputFailed, match="student cannot be written: No space left on device"):
        getattr(students, save)(trained, path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [
        ("student", b"earlier")
    ]


def test_a_saved_student_survives_a_loss_of_power(tmp_path, trained, monkeypatch):
    """First the content is synced, then, after the renaming, the folder."""
    synced = []

    def record(descriptor):
        synced.append((os.fstat(descriptor).st_ino, (tmp_path / "student.pt").exists()))

    monkeypatch.setattr(os, "fsync", record)
    students.save(trained, tmp_path / "student.pt")
    file, folder = ((tmp_path / name).stat().st_ino for name in ("student.pt", "."))
    assert synced == [(file, False), (folder, True)]


def write_stored(stored, path):
    """Write any content of a student file, with its correct digest."""
    content = io.BytesIO()
    torch.save(stored, content)
    path.write_bytes(seal_archive(content.getvalue()))


class Evil:
    def __reduce__(self):
        return (print, ("this ran",))


def test_a_file_that_would_run_code_is_refused(tmp_path, capsys):
    write_stored({"about": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(InvalidInput, match="not a student file"):
        students.load(tmp_path / "evil.pt")
    assert capsys.readouterr().out == ""


@pytest.fixture(scope="module")
def small_student():
    """A student of vectors (8,) that is trained in one step."""
    how = students.Recipe(network="mlp", method="plain", steps=1)
    pool = np.eye(8, dtype=np.float32)
    return students.train_student(pool, np.arange(2), ["a", "b"], ["a", "b"], how)


def forge(student, path, changes, **preprocessing):
    """Write a student file with a correct digest and other values in its description."""
    students.save(student, path)
    stored = torch.load(path, weights_only=True)
    about = {**json.loads(stored["about"]), **changes}
    about["preprocessing"] = {**about["preprocessing"], **preprocessing}
    write_stored({**stored, "about": json.dumps(about)}, path)


@pytest.mark.parametrize("fault", ["missing", "cut", "format", "weights", "nan"])
def test_damaged_files_are_refused(tmp_path, small_student, fault):
    path = tmp_path / "student.pt"
    forge(small_student, path, {"format": "mlp"} if fault == "format" else {})
    stored = torch.load(path, weights_only=True)
    if fault == "missing":
        path.unlink()
    elif fault == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif fault == "weights":
        del stored["head.weight"]
        write_stored(stored, path)
    elif fault == "nan":
        stored["head.weight"][0, 0] = float("nan")
        write_stored(stored, path)
    with pytest.raises(InvalidInput):
        students.load(path)


COLUMNS = {"kind": "columns", "edition": 1, "options": {}, "mapped": False, "columns": None}
COLUMNS["packages"] = {}
TEXT = {**COLUMNS, "kind": "text", "model": "0" * 64}


@pytest.mark.parametrize(
    "extractor",
    [
        None, "x", [], {"kind": "columns"}, {**COLUMNS, "kind": "evil"}, {**COLUMNS, "kind": []},
        {**COLUMNS, "columns": 5}, {**COLUMNS, "columns": [5]}, {**COLUMNS, "options": None},
        {**COLUMNS, "edition": "1"}, {**COLUMNS, "mapped": True}, {**COLUMNS, "packages": []},
        {**COLUMNS, "kind": "table"}, {**COLUMNS, "kind": "table", "options": {"schema": "FILE"}},
        {**COLUMNS, "kind": "hog", "options": {"cell": "x"}}, {**COLUMNS, "more": 1},
        {**COLUMNS, "kind": "hog", "options": {"orientations": 10**9}},
        {**COLUMNS, "kind": "image", "options": {"size": 513}},
        {**TEXT, "options": {"model": "FOLDER"}}, {**TEXT, "options": {"model": 5}},
        {name: value for name, value in TEXT.items() if name != "model"}, {**TEXT, "model": None},
    ],
)  # fmt: skip
def test_a_file_of_a_student_selects_no_files_of_the_recipient(tmp_path, small_student, extractor):
    """Each other layout of the extractor's description is refused before any file is opened."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "modules.json").write_text("[]")
    text = json.dumps(extractor).replace("FOLDER", str(folder))
    text = text.replace("FILE", str(folder / "modules.json"))
    path = tmp_path / "student.pt"
    forge(small_student, path, {"extractor": json.loads(text)})
    opened = []
    sys.addaudithook(
        lambda event, values: opened.append(values[0]) if event in ("open", "os.scandir") else None
    )
    with pytest.raises(InvalidInput, match="not a student file"):
        students.load(path)
    assert not [name for name in opened if str(name).startswith(str(folder))]


def test_a_student_with_a_public_map_is_not_written(tmp_path, small_student):
    from vicinal.store import StoreExtractor

    rows = np.random.default_rng(0).normal(size=(20, 8))
    extractor, _ = StoreExtractor("columns").fit_public_map(rows, n_components=8)
    for write in (students.save, students.save_onnx):
        with pytest.raises(InvalidInput, match="public map"):
            write(replace(small_student, extractor=extractor), tmp_path / "student")
    assert not list(tmp_path.iterdir())


def test_options_without_effect_on_vectors_are_not_in_a_students_file(tmp_path, small_student):
    from vicinal.store import StoreExtractor

    options = {"cell": 8, "n_jobs": 2}
    students.save(
        replace(small_student, extractor=StoreExtractor("hog", options)), tmp_path / "s.pt"
    )
    assert students.load(tmp_path / "s.pt").extractor.options == {"cell": 8}


@pytest.mark.parametrize(
    "changes",
    [
        {"guarantee": {"epsilon": float("nan")}}, {"guarantee": 5}, {"ranges": ["x"]},
        {"ranges": [0.0] * 4}, {"classes": [["a"], "b"]}, {"classes": ["a", "a"]},
        {"classes": ["a"]}, {"deviation": [0.0] * 8}, {"deviation": [1e-46] * 8},
        {"deviation": [-1.0] * 8}, {"mean": [1e39] * 8}, {"mean": [0.0]}, {"mean": "abcdefgh"},
        {"shape": [-1]}, {"shape": [8, 8, 3], "mean": [0.0] * 3, "deviation": [1.0] * 3},
        {"shape": [9], "mean": [0.0] * 9, "deviation": [1.0] * 9}, {"shape": []},
        {"second": ["a", "c"]}, {"shape": [1, 1], "mean": [0.0], "deviation": [1.0]},
        {"network": "small"}, {"network": "resnet"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("network", ["mlp", "kernel"])
def test_inconsistent_descriptions_are_refused(tmp_path, small_student, taught, network, changes):
    student = small_student if network == "mlp" else replace(taught[3], second=None)
    names = ("shape", "mean", "deviation")
    preprocessing = {name: changes[name] for name in names if name in changes}
    rest = {name: value for name, value in changes.items() if name not in names}
    if "second" in changes:
        about = LazyModule("vicinal.students.student").describe_student(student)
        rest["second"] = {**about, "classes": changes["second"]}
        student = replace(student, second=student)
    forge(student, tmp_path / "student.pt", rest, **preprocessing)
    with pytest.raises(InvalidInput, match="not a student file"):
        students.load(tmp_path / "student.pt")


def test_declared_sizes_take_no_memory_before_they_are_compared_with_tensors(
    tmp_path, small_student, trained, monkeypatch
):
    """Fails if a file of kilobytes can request a network of gigabytes."""
    largest = []
    allocate = torch.empty

    def record(*shape, **options):
        tensor = allocate(*shape, **options)
        if tensor.device.type == "cpu":
            largest.append(tensor.numel())
        return tensor

    monkeypatch.setattr(importlib.import_module("torch"), "empty", record)
    path = tmp_path / "student.pt"
    size = 60_000
    forge(small_student, path, {}, shape=[size], mean=[0.0] * size, deviation=[1.0] * size)
    with pytest.raises(InvalidInput, match="not a student file"):
        students.load(path)
    forge(trained, path, {}, shape=[100_000, 100_000])
    with pytest.raises(InvalidInput, match="not a student file"):
        students.load(path)
    students.save(small_student, path)
    stored = torch.load(path, weights_only=True)
    stored["body.0.weight"] = torch.zeros(1).expand(256, 8)
    write_stored(stored, path)
    with pytest.raises(InvalidInput, match="not a student file"):
        students.load(path)
    assert max(largest, default=0) < 1_000_000


@pytest.mark.parametrize("value", [np.nan, 1e39, 3e38, -1e308])
def test_examples_that_float32_does_not_represent_are_refused(small_student, value):
    """Fails if a finite number of float64 becomes a probability of NaN."""
    examples = np.zeros((3, 8))
    examples[1] = value
    for method in (small_student.predict_proba, small_student.predict, small_student.transform):
        with pytest.raises(InvalidInput, match="float32"):
            method(examples)
    with pytest.raises(InvalidInput, match="float32"):
        LazyModule("vicinal.students.student").Preprocessing.from_examples(
            examples.clip(-1e39, 1e39) * 10
        )


@pytest.mark.parametrize("name", SHAPES)
def test_onnx_says_what_the_student_says(tmp_path, name):
    runtime = pytest.importorskip("onnxruntime", reason="the ONNX form needs onnxruntime to run")
    pytest.importorskip("onnx", reason="writing ONNX needs the extra 'students'")
    raw = (9, 28, 28) if len(SHAPES[name]) == 3 else (9, 12)
    pool = np.random.default_rng(0).uniform(0, 255, size=raw).astype(np.float32)
    how = recipe(network=name, steps=1, labelled=4, unlabelled=4)
    student = students.train_student(pool, np.arange(6), np.arange(6) % 3, range(3), how)
    path = tmp_path / "student.onnx"
    students.save_onnx(replace(student, guarantee=GUARANTEE), path)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(["probabilities"], {"examples": pool})
    np.testing.assert_allclose(found, student.predict_proba(pool), atol=1e-4)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["guarantee"]) == GUARANTEE
    assert json.loads(metadata["classes"]) == [0, 1, 2]


@pytest.mark.parametrize("network", ["small", "kernel"])
def test_no_training_loads_a_compiler(digits, network, monkeypatch):
    """The import of torch's compiler by its optimizers takes seconds."""
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    for wrapped in (torch.optim.Optimizer.add_param_group, torch.optim.Optimizer.zero_grad):
        monkeypatch.delattr(unwrap(wrapped), "__dynamo_disable", raising=False)
    images = digits[0][:60] if network == "small" else digits[0][:60].reshape(60, -1)
    how = recipe(steps=2, network=network)
    students.train_student(images, np.arange(60), digits[1][:60], range(10), how)
    with pytest.raises(ImportError, match="dynamo"):
        torch.optim.LBFGS([torch.zeros(2, requires_grad=True)])


# A student of a released model.


@pytest.fixture(scope="module")
def taught():
    """Vectors, a nonlinear teacher's probabilities, and a student trained on these."""
    rng = np.random.default_rng(4)
    pool, new = rng.normal(size=(400, 6)), rng.normal(size=(300, 6))

    def soft(X):
        chance = 1 / (1 + np.exp(-4 * X[:, 0] * X[:, 1]))
        return np.stack([chance, 1 - chance, 0 * chance], axis=1)

    how = recipe(network="kernel")
    rows = np.arange(5)
    labels = soft(pool)[rows].argmax(axis=1)
    student = students.train_student(pool, rows, labels, range(3), how, soft_labels=soft(pool))
    return pool, new, soft, student, how


def test_a_student_of_vectors_learns_what_the_model_says_of_examples_not_asked_about(taught):
    pool, new, soft, student, how = taught
    agrees = (student.predict(new) == soft(new).argmax(axis=1)).mean()
    assert agrees > 0.8
    alone = students.train_student(pool, np.arange(5), student.predict(pool[:5]), range(3), how)
    assert (alone.predict(new) == soft(new).argmax(axis=1)).mean() < agrees - 0.1
    assert student.predict_proba(new)[:, 2].max() < 0.1, (
        "a class without probability in the soft labels"
    )


def test_answers_count_by_their_share_beside_soft_labels(taught):
    pool, _, soft, student, how = taught
    rows = np.arange(200)
    other = 1 - soft(pool)[rows].argmax(axis=1)  # answers that contradict the model
    again = students.train_student(pool, rows, other, range(3), how, soft_labels=soft(pool))
    np.testing.assert_allclose(again.predict_proba(pool), student.predict_proba(pool), atol=1e-5)
    how = replace(how, soft_share=0.0)
    answers_only = students.train_student(pool, rows, other, range(3), how, soft_labels=soft(pool))
    assert (answers_only.predict(pool[rows]) == other).mean() > 0.9


def test_a_kernel_student_is_exact(taught):
    _, new, _, student, _ = taught
    features = student.transform(new)
    np.testing.assert_array_equal(features[7:8], student.transform(new[7:8]))
    np.testing.assert_array_equal(features[::-1], student.transform(new[::-1]))
    with torch.no_grad():
        smooth = student.network.body(student.preprocessing(new)).numpy()
    assert np.corrcoef(features.ravel(), smooth.ravel())[0, 1] > 0.9
    with pytest.raises(InvalidInput, match="vectors"):
        students.train_student(
            np.zeros((9, 8, 8)) + np.arange(9)[:, None, None], [0, 1], [0, 1], [0, 1],
            recipe(network="kernel"),
        )  # fmt: skip


# A second student, of the gradients.


@pytest.fixture(scope="module")
def pair():
    """Images of 16 by 16 pixels, their labels, and an ensemble of two students."""
    data = load_digits()
    images, labels = np.kron(data.images[:600], np.ones((2, 2))), data.target[:600]
    soft = np.full((600, 10), 0.02)
    soft[np.arange(600), labels] = 0.82
    rows, how = np.arange(400), recipe(steps=20, ensemble=True)
    student = students.train_student(images, rows, labels[rows], range(10), how, soft_labels=soft)
    return images, labels, student


def test_an_ensemble_averages_the_network_with_a_student_of_gradients(pair):
    images, labels, student = pair
    joined = student.predict_proba(images)
    np.testing.assert_allclose(joined.sum(axis=1), 1, rtol=1e-5)
    assert student.second.name == "kernel"
    assert (joined.argmax(axis=1) == labels).mean() > 0.9
    network = replace(student, second=None)
    assert (network.predict(images) == labels).mean() < (joined.argmax(axis=1) == labels).mean()
    features = HOGFeatures().transform(images)
    first = np.log(network.predict_proba(images))
    second = np.log(student.second.predict_proba(features))
    product = np.exp(0.7 * first + 0.3 * second)
    expected = product / product.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(joined, expected, atol=1e-4)
    np.testing.assert_array_equal(student.transform(images[:9]), network.transform(images[:9]))


def test_an_ensemble_of_images_is_not_kept_as_onnx(pair, tmp_path):
    with pytest.raises(InvalidInput, match="histograms"):
        students.save_onnx(pair[2], tmp_path / "student.onnx")


@pytest.fixture(scope="module")
def vectors_pair(taught):
    """New vectors, and an ensemble whose second student is trained for a tenth of its steps."""
    pool, new, soft, student, how = taught
    rows, labels = np.arange(5), soft(pool)[:5].argmax(axis=1)
    from vicinal.students import learner

    with pytest.MonkeyPatch.context() as patch:
        shorter = replace(learner._SECOND_VECTOR_RECIPE, steps=50)
        patch.setattr(learner, "_SECOND_VECTOR_RECIPE", shorter)
        joined = students.train_student(
            pool, rows, labels, range(3), replace(how, ensemble=True), soft_labels=soft(pool)
        )
    return new, soft(new), student, joined


def test_an_ensemble_of_vectors_averages_two_that_learnt_the_same_soft_labels(vectors_pair):
    new, soft, student, joined = vectors_pair
    assert (joined.name, joined.second.name) == ("kernel", "wide")
    first, second = student.predict_proba(new), joined.second.predict_proba(new)
    assert (second.argmax(axis=1) == soft.argmax(axis=1)).mean() > 0.8
    product = np.sqrt(first * second)
    expected = product / product.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(joined.predict_proba(new), expected, atol=1e-5)
    np.testing.assert_array_equal(joined.transform(new[:9]), student.transform(new[:9]))


def test_an_ensemble_of_vectors_is_published(vectors_pair, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    new, _, _, joined = vectors_pair
    students.save_onnx(joined, tmp_path / "student.onnx")
    session = runtime.InferenceSession(tmp_path / "student.onnx")
    (answers,) = session.run(None, {"examples": new.astype(np.float32)})
    np.testing.assert_allclose(answers, joined.predict_proba(new), atol=1e-4)
