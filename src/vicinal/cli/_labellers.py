"""Who answers, as options of `vicinal label` and `vicinal transfer`: Ind-KNN, Private-kNN, PATE."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._options import Delta
from vicinal.cli._output import as_json
from vicinal.errors import InvalidInput, PrivacyRefused

if TYPE_CHECKING:
    from vicinal._arrays import AnyArray
    from vicinal.datasets import Dataset
    from vicinal.labelling import FixedPlanLabeller, IndKNNLabeller, LabellingPlan, Planned, Round

IND_KNN, PRIVATE_KNN, PATE = "ind-knn", "private-knn", "pate"
KINDS = (IND_KNN, PRIVATE_KNN, PATE)

Price = Annotated[
    bool, typer.Option("--price", help="Tell what the plan costs; ask and write nothing.")
]

_LABELLERS_OF = {
    "neighbors": (PRIVATE_KNN,),
    "gamma": (PRIVATE_KNN,),
    "teachers": (PATE,),
    "sigma_votes": (PRIVATE_KNN, PATE),
    "sigma_screen": (PRIVATE_KNN, PATE),
    "threshold": (PRIVATE_KNN, PATE),
    "records": (IND_KNN,),
    "records_per_subject": (IND_KNN,),
    "model_share": (IND_KNN,),
}
"""The labellers that an option is for; the others are for all."""


@dataclass(frozen=True, slots=True)
class LabellerOptions:
    """Who answers, and for how much. An option of another labeller is refused."""

    labeller: Annotated[str, typer.Option(help="ind-knn, private-knn or pate.")] = IND_KNN
    epsilon: Annotated[
        float, typer.Option(help="Bound on the privacy loss, of everything together.")
    ] = 1.0
    delta: Delta = 1e-5
    records: Annotated[
        int | None, typer.Option(help="Public number of records; else estimated, with noise.")
    ] = None
    records_per_subject: Annotated[
        float | None, typer.Option(help="ind-knn: public mean number of records of a subject; 1.")
    ] = None
    neighbors: Annotated[int | None, typer.Option(help="private-knn: how many vote; 300.")] = None
    gamma: Annotated[
        float | None, typer.Option(help="private-knn: sampling rate of people; .15.")
    ] = None
    teachers: Annotated[int | None, typer.Option(help="pate: how many teachers; 250.")] = None
    sigma_votes: Annotated[
        float | None,
        typer.Option(help="private-knn, pate: noise on votes; else the least that keeps epsilon."),
    ] = None
    sigma_screen: Annotated[
        float | None, typer.Option(help="private-knn, pate: noise of a screening; else none.")
    ] = None
    threshold: Annotated[
        float | None, typer.Option(help="private-knn, pate: of the screening.")
    ] = None

    @property
    def release(self) -> str:
        """What leaves."""
        return "votes"

    @property
    def model_share(self) -> str | None:
        """The share of budgets that trains a private model: none where features change."""
        return "0"

    def __post_init__(self) -> None:
        from vicinal import _checks

        _checks.choice("labeller", self.labeller, KINDS)
        _checks.real("epsilon", self.epsilon, above=0)
        # A share that is no option here, as in several rounds, is nobody's choice.
        options = {field.name for field in fields(self)}
        for name, kinds in _LABELLERS_OF.items():
            is_set = name in options and getattr(self, name) is not None
            if is_set and self.labeller not in kinds:
                option = "--" + name.replace("_", "-")
                raise InvalidInput(f"The option {option} is for {' and '.join(kinds)} only.")
        if (self.sigma_screen is None) != (self.threshold is None):
            raise InvalidInput("A screening needs both --sigma-screen and --threshold.")

    def labeller_of(
        self, dataset: Dataset, classes: list[Any], plan: LabellingPlan
    ) -> IndKNNLabeller | FixedPlanLabeller:
        """Return who answers; noise or screening that costs more than epsilon is refused."""
        from vicinal.labelling import IndKNNLabeller

        labels = dataset.labels
        if labels is None:
            raise InvalidInput("The private file must have labels, called y.")
        if self.labeller != IND_KNN:
            return self._planned(labels, dataset.subjects, classes, plan)
        return IndKNNLabeller(
            classes, labels, dataset.subjects, epsilon=self.epsilon, delta=self.delta,
            release=self.release, n_records=self.records, model_share=share_of(self.model_share),
            **self._set_options(records_per_subject=self.records_per_subject),
        )  # fmt: skip

    def _planned(
        self, labels: AnyArray, subjects: AnyArray | None, classes: list[Any], plan: LabellingPlan
    ) -> FixedPlanLabeller:
        from vicinal.labelling import FixedPlanLabeller, least_noise

        def with_noise(sigma: float) -> FixedPlanLabeller:
            make = partial(self._classifier, classes, plan, sigma)
            return FixedPlanLabeller(make, plan, labels, subjects)

        if self.sigma_votes is None:
            return with_noise(least_noise(lambda s: with_noise(s).epsilon(), self.epsilon))
        if not (price := with_noise(self.sigma_votes).epsilon()) <= self.epsilon:
            raise PrivacyRefused(
                f"The plan costs epsilon {price:.4g}, more than the {self.epsilon:g} that it may. "
                "Take more noise or a larger epsilon, or leave --sigma-votes out."
            )
        return with_noise(self.sigma_votes)

    def _classifier(
        self, classes: list[Any], plan: LabellingPlan, sigma: float, part: Round
    ) -> Planned:
        from vicinal.baselines import PATEClassifier
        from vicinal.labelling import noise_of
        from vicinal.predictors import PrivateKNNClassifier

        shared: dict[str, Any] = {
            "sigma_votes": noise_of(part, plan, sigma),
            "sigma_screen": self.sigma_screen,
            "threshold": self.threshold,
            "delta": self.delta,
            "release": self.release,
        }
        if self.labeller == PATE:
            shared["mechanism"] = "gnmax" if self.threshold is None else "confident_gnmax"
            return PATEClassifier(classes, **shared, **self._set_options(n_teachers=self.teachers))
        return PrivateKNNClassifier(
            classes, **shared, **self._set_options(k=self.neighbors, gamma=self.gamma)
        )

    @staticmethod
    def _set_options(**options: float | None) -> dict[str, Any]:
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class LabelOptions(LabellerOptions):
    """The same for a single round."""

    release: Annotated[str, typer.Option(help="'votes', or 'label' for labels alone.")] = "votes"
    model_share: Annotated[
        str | None,
        typer.Option(
            help="ind-knn: share of budgets that trains a private model, 0, or auto; auto."
        ),
    ] = None


def share_of(text: str | None) -> float | str:
    """Return a share as a number, auto for None; what is none is refused later, by name."""
    try:
        return "auto" if text is None else float(text)
    except ValueError:
        return str(text)


def tell_price(
    labeller: IndKNNLabeller | FixedPlanLabeller, plan: LabellingPlan, *, json: bool
) -> None:
    """Print what is known before the first question."""
    price = price_of(labeller, plan)
    typer.echo(as_json(price) if json else price_text(price))


def price_of(labeller: IndKNNLabeller | FixedPlanLabeller, plan: LabellingPlan) -> dict[str, Any]:
    """Return what is known before the first question, for JSON: rounds, releases, guarantee."""
    from vicinal.labelling import FixedPlanLabeller

    price: dict[str, Any] = {"rounds": plan.to_dict()["rounds"]}
    if isinstance(labeller, FixedPlanLabeller):
        price["plan"] = labeller.plan()
    return price | {"guarantee": labeller.guarantee().to_dict()}


def price_text(price: dict[str, Any]) -> str:
    """Return :func:`price_of` in words."""
    questions = [f"{part['questions']:,}" for part in price["rounds"]]
    lines = [f"Questions of each round: {', '.join(questions)}. Nothing was asked."]
    for release in price.get("plan", {}).get("releases", ()):
        numbers = {name: v for name, v in release.items() if isinstance(v, int | float)}
        fields = (f"{name} {value:.6g}" for name, value in numbers.items())
        lines.append(f"{release['kind']}: {', '.join(fields)}")
    return "\n".join([*lines, "", price["guarantee"]["text"]])
