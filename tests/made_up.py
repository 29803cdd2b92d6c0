"""Data that several files of tests make up, and noise that is none."""

import dataclasses

import numpy as np

from vicinal.noise import NoiseSource
from vicinal.planning.engine_factory import train_and_charge_model
from vicinal.planning.plan import IndKNNPlan
from vicinal.targets.kinds import declared_target


class NoNoise(NoiseSource):
    """Zeros, to see the sums."""

    exact = False

    def discrete_gaussian(self, scale, size):  # noqa: ARG002 (whatever the scale)
        """Return zeros."""
        return np.zeros(size, dtype=np.int64)


class Cut(Exception):
    """Where a process ends."""


def cut_after_first_block(labeller, patch):
    """Have a labeller end with its second block; return the sizes of those that it answers."""
    blocks, honest = [], labeller.label

    def label(queries):
        if blocks:
            raise Cut
        blocks.append(len(queries))
        return honest(queries)

    patch.setattr(labeller, "label", label)
    return blocks


def raising(error):
    """Return what raises an error, whatever it is called with."""

    def fails(*_, **__):
        raise error

    return fails


class Killed(BaseException):
    """What no code catches."""


def dies_at(patch, owner, name, call, *, done):
    """Have a method die at a call of it, before or after it is done."""
    honest, calls = getattr(owner, name), []

    def dying(self, *args, **more):
        calls.append(None)
        if len(calls) == call and not done:
            raise Killed
        result = honest(self, *args, **more)
        if len(calls) == call:
            raise Killed
        return result

    patch.setattr(owner, name, dying)


def components_for_few(patch):
    """Have private models of few features trained on components of a kernel."""
    patch.setattr("vicinal.linear.model_features.MIN_KERNEL_FEATURES", 1)


def shorten_second_training(patch):
    """Have the second student of an ensemble for vectors trained in a tenth of its steps."""
    from vicinal.students import learner

    recipe = dataclasses.replace(learner._SECOND_VECTOR_RECIPE, steps=50)
    patch.setattr(learner, "_SECOND_VECTOR_RECIPE", recipe)


def corners(seed, size, d=8, classes=3):
    """Return points around one corner a class, 3 from the origin, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, size)
    return 3 * np.eye(classes, d)[y] + rng.normal(size=(size, d)), y


def clouds(seed, size, d, classes=3):
    """Return points around any centre a class, always the same ones, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, size)
    centres = np.random.default_rng(99).normal(size=(classes, d)) * 2
    return centres[y] + rng.normal(size=(size, d)), y


def rare(seed, size, share):
    """Return points of two classes, 2.5 apart in one of four features; so many have the second."""
    rng = np.random.default_rng(seed)
    y = (rng.random(size) < share).astype(int)
    X = rng.normal(size=(size, 4))
    X[:, 0] += 2.5 * y - 1
    return X, y


def records_and_pool():
    """Return records, their classes, a pool to be labelled, and what is right for it."""
    rng = np.random.default_rng(3)
    centres = np.eye(3, 6) * 4
    labels, truth = rng.integers(3, size=900), rng.integers(3, size=700)
    records = centres[labels] + rng.normal(size=(900, 6))
    pool = centres[truth] + rng.normal(size=(700, 6))
    return records, labels, pool, truth


def patients(size, seed, shift=0.0):
    """Return an Arrow table: who is ill is older; two rows are of one person."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    ill = rng.random(size) < 0.5
    return pa.table({
        "age": (40 + 30 * ill + rng.normal(shift, 5, size)).round(),
        "sex": rng.choice(["f", "m"], size),
        "y": np.where(ill, "ill", "well"), "who": [f"p{i // 2}" for i in range(size)],
    })  # fmt: skip


def plan_of(n_classes=2, **parameters):
    """Return the plan of a classifier; without a private model unless one is asked for."""
    target = declared_target({"classes": range(n_classes)})
    return IndKNNPlan.of_target(target, {"model_share": 0, **parameters}).replanned()


def trains_free(patch):
    """Have a store's training charge a copy of the budgets."""
    honest = train_and_charge_model

    def broken(settings, encoder, records, public, people, *rest):
        free = dataclasses.replace(people, remaining=people.remaining.copy())
        return honest(settings, encoder, records, public, free, *rest)

    patch.setattr("vicinal.store.private_models.train_and_charge_model", broken)
