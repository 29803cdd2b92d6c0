"""Verdicts on plans: the required number of records."""

from command_line import shown as run
from made_up import plan_of
from vicinal.planning.plan_simulation import PlanChoice
from vicinal.reports.plan_report import (
    ENOUGH_LEAD,
    least_records,
    model_records,
    rare_classes,
    unanimous_lead,
    verdict,
)


def wished(n_records, n_queries, epsilon):
    given = {"n_records": n_records, "n_queries": n_queries, "epsilon": epsilon}
    return plan_of(**given)


def test_a_verdict_says_what_can_work():
    for n_records, n_queries, said in (
        (500, 1000, "expect noise"), (500, 30, "enough records"), (50_000, 1000, "enough records"),
    ):  # fmt: skip
        line = verdict(wished(n_records, n_queries, 1.0), known=True)
        assert f"epsilon 1: {said}. Neighbours alone need about" in line
    noisy = wished(300, 100, 1.0).replanned(noise_multiplier=5.0)
    assert "expect noise with any number of records" in verdict(noisy, known=True)


def test_without_a_number_of_records_the_verdict_says_how_many_are_needed():
    wish = wished(1, 1000, 1.0)
    least = least_records(wish)
    assert unanimous_lead(PlanChoice.of(wish.replanned(n_records=least))) >= ENOUGH_LEAD
    assert unanimous_lead(PlanChoice.of(wish.replanned(n_records=least // 2))) < ENOUGH_LEAD
    assert f"need about {least:,} records" in verdict(wish, known=False)


def test_a_private_model_needs_records_by_epsilon_alone():
    wish = wished(1000, 1000, 1.0).changed(n_public=50).replanned(model_share=0.9)
    assert 400 < model_records(wish) < 600
    assert model_records(wish.replanned(n_queries=10**6)) == model_records(wish)
    assert 0.8 < model_records(wish.replanned(epsilon=0.5)) / (2 * model_records(wish)) < 1.2
    assert "enough records. A private model needs" in verdict(wish, known=True)
    assert "expect noise. A private model" in verdict(wish.replanned(n_records=100), known=True)
    assert f"need about {model_records(wish):,} records" in verdict(wish, known=False)


def test_a_class_that_is_too_rare_is_named_with_what_it_would_take():
    wish = wished(20_000, 500, 1.0)
    assert rare_classes(wish, (0.5, 0.5), ("a", "b")) == []
    (line,) = rare_classes(wish, (0.99, 0.01), ("a", "b"))
    assert line.startswith("class 'b' is too rare for this plan")
    assert rare_classes(wish.replanned(n_records=10**7), (0.99, 0.01), ("a", "b")) == []
    told = run(
        "plan", "--records", 20000, "--queries", 500, "--classes", 2, "--class-prior", ".99,.01"
    )
    assert "class 1 is too rare" in told
    run("plan", "--records", 200, "--queries", 5, "--classes", 2, "--class-prior", "1", code=2)
