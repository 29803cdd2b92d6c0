"""`vicinal account`, `calibrate` and `plan`: what things cost, before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, echo

from vicinal import __version__, accounting, ledger, planning, reports, targets
from vicinal._lazy import load_when_used
from vicinal.cli._options import Delta, Epsilon, Json, grouped
from vicinal.cli._output import as_json, progress
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.neighbours import Reference

    Choices = list[tuple[str, planning.PlanChoice, list[targets.ExpectedError]]]
    """Names, plans, and what to expect of them."""

PlanFile = Annotated[Path, Argument(metavar="PLAN.json", help="The plan, as JSON.")]

_UNUSED = ("ctypeslib", "f2py", "random", "testing")
"""What scipy.special loads of numpy, to list its names, and pricing has no use for."""

_METHOD_WORDS = {
    "rdp_mironov": "RDP, conversion of Mironov 2017 (as older papers print it)",
    "rdp": "RDP, conversion of Balle et al. 2020",
    "gdp": "Gaussian DP, exact",
    "pld": "privacy loss distribution",
}
_MOST_SHOWN = 3


def account(
    plan: PlanFile,
    json: Json = False,
) -> None:
    """Price a plan by every valid method. Nothing is spent, and no private data is read."""
    load_when_used("numpy", *_UNUSED)
    price = accounting.Plan.from_dict(read_plan(plan)).price()
    echo(as_json(price) if json else _price_text(price))


def calibrate(
    plan: PlanFile,
    epsilon: Annotated[float, Option(help="The target, at the delta of the plan.")],
    field: Annotated[str, Option(help="What to find: sigma, gamma, count, B, ...")],
    release: Annotated[int, Option(help="Of which release, counted from 0.")] = 0,
    json: Json = False,
) -> None:
    """Find the value of one field with which a plan just keeps a target; never more than it."""
    load_when_used("numpy", *_UNUSED)
    answer = accounting.calibrate(read_plan(plan), epsilon, field, release)
    fields = {"field": answer.field, "release": answer.release, "value": answer.value}
    text = f"{field} of release {release}: {answer.value:.8g}\n\n{_price_text(answer.price)}"
    echo(as_json({**fields, "price": answer.price}) if json else text)


def read_plan(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; NaN and infinities are refused with the rest."""
    return ledger.read_json(path, "plan")  # type: ignore[no-any-return]


def _price_text(price: dict[str, Any]) -> str:
    lines = [f"epsilon {price['epsilon']:.4g} at delta {price['delta']:g}", ""]
    for name, value in price["by_method"].items():
        best = "  <- best" if name == price["method"] else ""
        lines.append(f"  {value:10.4f}  {_METHOD_WORDS[name]}{best}")
    if price["lower"] is not None:
        lines.append(f"  {price['lower']:10.4f}  no analysis of these releases can go below this")
    lines += ["", "  share  alone   release"]
    for release in price["releases"]:
        lines.append(_release_line(release, "kind", f"{release['share']:5.1%}"))
        lines += [f"{_release_line(part, 'part', '')} (in it)" for part in release.get("parts", [])]
    lines += ["", f"Neighbouring data sets: {price['neighbouring']}.", "Assumed:"]
    return "\n".join([*lines, *(f"- {words};" for words in price["assumptions"])])


def _release_line(release: dict[str, Any], name: str, share: str) -> str:
    words = ", ".join(
        f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in release.items()
        if key not in ("kind", "part", "parts", "share", "alone")
    )
    return f"  {share:5}  {release['alone']:6.4g}  {release[name]}: {words}"


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What records carry in place of a class: numbers, or several labels."""

    target: Annotated[
        str | None,
        Option(help="For numbers: targets with their bounds.", metavar="NAME=LOW..HIGH,..."),
    ] = None
    scale: Annotated[str | None, Option(help="Of numbers: linear, or log.")] = None
    typical_range: Annotated[
        str | None, Option(help="Where most numbers lie.", metavar="NAME=LOW..HIGH,...")
    ] = None
    thresholds: Annotated[int | None, Option(help="Of numbers: for quantiles and histograms.")] = (
        None
    )
    label_count: Annotated[
        int | None, Option(help="For several labels a record: how many there are.")
    ] = None
    tau: Annotated[float | None, Option(help="Labels a record may have at most.")] = None

    def parameters(self) -> dict[str, Any]:
        """Return what an estimator takes of it, of one kind at most; nothing for classes."""
        from vicinal import _checks

        of_kind = {"bounds": self.target, "labels": self.label_count}
        kinds = [kind for kind, value in of_kind.items() if value is not None]
        if len(kinds) > 1:
            raise InvalidInput("Give --target or --label-count: records carry one kind.")
        parameters: dict[str, Any] = {}
        for kind, name, value in (
            ("bounds", "scale", self.scale),
            ("bounds", "typical_range", self.typical_range),
            ("bounds", "n_thresholds", self.thresholds),
            ("labels", "tau", self.tau),
        ):
            if value is not None and kind not in kinds:
                raise InvalidInput(
                    f"The {name!r} option is for {targets.KINDS[kind].words}, and records carry "
                    f"{_carried_words(of_kind)} here. Leave it out."
                )
            if value is not None:
                parameters[name] = value
        for name, text in (("bounds", self.target), ("typical_range", self.typical_range)):
            if text is not None:
                parameters[name] = targets.BoundsOfTargets().parsed(text)
        if self.label_count is not None:
            count = _checks.integer("label_count", self.label_count, least=1, most=10_000)
            parameters["labels"] = [f"label {number}" for number in range(1, count + 1)]
        return parameters


def _carried_words(parameters: dict[str, Any]) -> str:
    """Return what records carry, in words, by the parameters that say so; classes by default."""
    kinds = (kind for name, kind in targets.KINDS.items() if parameters.get(name) is not None)
    return next(kinds, targets.Classes).words


@dataclass(frozen=True, slots=True)
class ClassOptions:
    """What a plan for classes may set besides."""

    release: Annotated[str, Option(help="What leaves: votes, or label.")] = "votes"
    gate: Annotated[
        bool, Option("--gate", help="Let a model of earlier answers give those it knows.")
    ] = False
    model_share: Annotated[
        str, Option(help="Share of budgets for a private model: a number, 0, or auto.")
    ] = "auto"
    labels: Annotated[
        str | None, Option(help="Column of the points' labels, if they have real ones (.npz: y).")
    ] = None
    class_prior: Annotated[
        str | None, Option(help="How common each class is, as .95,.05; warns of rare ones.")
    ] = None


@grouped
def plan(
    records: Annotated[int, Option(help="Declared number of private records.")],
    queries: Annotated[int, Option(help="Answers wanted.")],
    *,
    classes: Annotated[int | None, Option(help="Number of classes.")] = None,
    target_options: TargetOptions,
    records_per_subject: Annotated[
        float, Option(help="Public mean number of records of a subject.")
    ] = 1.0,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    class_options: ClassOptions,
    public: Annotated[
        Path | None,
        Option(help="Public points, mapped as records will be: .npz (x), .csv or .parquet."),
    ] = None,
    seed: Annotated[int, Option(help="Of the simulation.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Show the plan, its reasons, and what to expect. No private record is read, nothing is spent.

    With public points the plan is played through on them, and beside it other releases, more and
    fewer queries, and other guarantees.
    """
    from vicinal import _checks

    carried = target_options.parameters()
    if bool(carried) == (classes is not None):
        raise InvalidInput("Give one of --classes, --target and --label-count: what records carry.")
    parameters: dict[str, Any] = {
        "n_records": _checks.integer("records", records, least=1),
        "n_queries": queries,
        "epsilon": epsilon,
        "delta": delta,
        "records_per_subject": records_per_subject,
    }
    if classes is not None:
        parameters["reuse_predictions"] = planning.GATE if class_options.gate else False
        asked = planning.IndKNNPlan.of_classes(classes, release=class_options.release, **parameters)
        _plan_classes(asked, class_options, public, seed, json=json)
        return
    for name, default in asdict(ClassOptions()).items():
        if getattr(class_options, name) != default:
            raise InvalidInput(
                f"The {name!r} option is for classes, and records carry {_carried_words(carried)} "
                "here. Leave it out."
            )
    target = targets.declared_target(carried)
    vectors = planning.IndKNNPlan.of_target(target, {**carried, **parameters})
    reference = None if public is None else _simulation_setup(public, None, 2).reference
    choices = _vector_choices(vectors, reference)
    text = None if json else _vector_text(vectors, choices, known=reference is not None)
    echo(text or as_json(_vector_result(choices)))


def _plan_classes(
    request: planning.IndKNNPlan, options: ClassOptions, public: Path | None, seed: int, *,
    json: bool,
) -> None:  # fmt: skip
    shares = _numbers("class_prior", options.class_prior)
    n_classes = request.target.n_coordinates
    setup = None if public is None else _simulation_setup(public, options.labels, n_classes)
    request = _with_model(
        request.on(None if setup is None else setup.reference), options.model_share
    )
    lines = verdict_lines(request, range(n_classes), shares, known=True)
    if request.n_public and not request.model_share and not request.why_no_model:
        lines += linear_model_lines(request)
    with progress(silent=json) as begin:
        choices = reports.plan_options(
            request, setup, seed, begin("simulation", reports.work(request))
        )
    if not json:
        echo(f"{reports.as_text(choices)}\n\n" + "\n".join(lines))
        return
    result = {
        "verdict": "\n".join(lines),
        "real_labels": setup is not None and setup.real,
        "usage": asdict(choices[0].choice.usage),
        "plan": choices[0].to_dict(),
        "alternatives": [choice.to_dict() for choice in choices[1:]],
        "version": __version__,
    }
    echo(as_json(result))


def verdict_lines(
    request: planning.IndKNNPlan, names: Sequence[Any], shares: Sequence[float] | None, *,
    known: bool,
) -> list[str]:  # fmt: skip
    """Return whether a plan can work, or what it needs if the number of records is not `known`.

    `shares`: how common each class is; rare ones are named.
    """
    if not known:
        return [reports.verdict_without_records(request)]
    if shares is None:
        return [reports.verdict(request)]
    if len(shares) != len(names):
        raise InvalidInput(
            f"The 'class_prior' option must hold {len(names)} numbers, one for each class. "
            f"Got {len(shares)}."
        )
    return [reports.verdict(request), *reports.rare_classes(request, shares, names)]


def linear_model_lines(request: planning.IndKNNPlan) -> list[str]:
    """Return the line on where a private linear model is likely to be the better choice, if any."""
    line = reports.linear_model_note(request)
    return [] if line is None else [line]


def _numbers(name: str, text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(
            f"The {name!r} option must be a number for every class, in the order of the classes, "
            "as .95,.05."
        ) from None


def _with_model(request: planning.IndKNNPlan, option: str) -> planning.IndKNNPlan:
    """Return the request with its share for a private model; "auto" goes by public points."""
    if option == "auto":
        return planning.with_model_by_rule(request)
    try:
        share = float(option)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise InvalidInput(
            "The 'model_share' parameter must be a number from 0 to below 1, or auto. "
            f"Got {option!r}."
        )
    return request.replanned(model_share=share)


def _simulation_setup(public: Path, labels: str | None, classes: int) -> planning.SimulationSetup:
    """Return public points from a file, as the classifier would take them in."""
    import numpy as np

    from vicinal.datasets import load_table
    from vicinal.neighbours import Cosine

    keyed = public.suffix.lower() == ".npz"
    data = load_table(public, None if keyed else labels)
    points = np.asarray(data.features)
    if points.ndim != 2 or points.dtype.kind not in "iuf" or not np.isfinite(points).all():
        raise InvalidInput(
            "The 'public' parameter must hold rows of finite numbers: features as the classifier "
            "will see them."
        )
    kernel, places = Cosine.fitting(points), None
    if labels is not None:
        if data.labels is None:
            raise InvalidInput("The 'labels' parameter is given, but the public points have none.")
        names, places = np.unique(data.labels, return_inverse=True)  # names stand in their order
        if len(names) > classes:
            raise InvalidInput(
                f"The 'classes' parameter must be at least the {len(names)} classes of the public "
                f"labels. Got {classes}."
            )
        places = places.astype(np.int64)
    return planning.SimulationSetup.of(kernel, kernel.encode(points), classes, places)


def _vector_choices(request: planning.IndKNNPlan, reference: Reference | None) -> Choices:
    requests = {
        "as wished": request,
        "half the queries": request.replanned(n_queries=max(1, request.n_queries // 2)),
        "twice the queries": request.replanned(n_queries=2 * request.n_queries),
        "half the epsilon": request.replanned(epsilon=request.epsilon / 2),
        "twice the epsilon": request.replanned(epsilon=2 * request.epsilon),
    }
    of = planning.PlanChoice.of
    choices = {name: of(other, reference) for name, other in requests.items()}
    k = choices["as wished"].n_neighbors
    choices["half the neighbours"] = of(request, reference, max(1, k // 2))
    choices["twice the neighbours"] = of(request, reference, min(2 * k, request.size))
    return [(name, each, each.expected_errors()) for name, each in choices.items()]


def _vector_result(choices: Choices) -> dict[str, Any]:
    shown = [
        {
            "name": name,
            "n_records": choice.plan.size,
            "n_queries": choice.plan.n_queries,
            "epsilon": choice.plan.epsilon,
            "delta": choice.plan.delta,
            "n_neighbors": choice.n_neighbors,
            "noise_multiplier": choice.multiplier,
            "noise_scale": choice.noise,
            "participations": choice.participations,
            "cost_of_one": choice.cost,
            "questions_until_worn": choice.lasts,
            "expected": [asdict(error) for error in errors],
        }
        for name, choice, errors in choices
    ]
    usage = choices[0][1].usage
    return {
        "usage": {"weight": usage.weight, "spread": usage.spread},
        "plan": shown[0],
        "alternatives": shown[1:],
        "version": __version__,
    }


def _vector_text(request: planning.IndKNNPlan, choices: Choices, *, known: bool) -> str:
    _, choice, errors = choices[0]
    source = "" if known else ": the largest; public points, --public, would tell"
    more = len(errors) - _MOST_SHOWN
    return "\n".join([
        (f"{request.n_queries:,} answers from {request.size:,} records, epsilon "
        f"{request.epsilon:g} at delta {request.delta:g}"),
        "",
        f"neighbours   k = {choice.n_neighbors:,}",
        f"noise        sigma2 = {choice.multiplier:.4g}, that is {choice.noise:.4g} on every sum",
        f"records      each takes part in {choice.participations:.3g} questions expected",
        f"             (mean squared kernel weight {choice.usage.weight:.2f}{source})",
        *(f"expected     {each.name}: {each.value:.4g} +- {each.error:.2g}"
          for each in errors[:_MOST_SHOWN]),
        *([f"             and {more} more alike"] if more > 0 else []),
        "             (error by noise alone; how unlike neighbours are comes on top)",
        "",
        f"{'':22}{'queries':>8} {'eps':>6} {'k':>6} {'sigma2':>7} {'error':>9}",
        *(f"{name:22}{other.plan.n_queries:8,} {other.plan.epsilon:6g} "
          f"{other.n_neighbors:6,} {other.multiplier:7.3f} {shown[0].error:9.3g}"
          for name, other, shown in choices),
    ])  # fmt: skip
