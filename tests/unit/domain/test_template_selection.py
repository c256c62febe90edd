"""Which templates a start is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from template_world import Library, group, never, template

from corral.domain.groups.group import TemplateChoice, TemplateSelection
from corral.domain.groups.template_selection import MAX_DEPTH, check_parents, select_templates
from corral.errors import Code, Rejected


def choice(name: str, priority: int = 0, *, override: bool = True) -> TemplateChoice:
    return TemplateChoice(name=name, priority=priority, override=override)


def names(selection) -> list[str]:
    return [layer.record.name for layer in selection.layers]


def refusal(spec, library) -> Rejected:
    with pytest.raises(Rejected) as caught:
        select_templates(spec, library, lambda count: 0)
    return caught.value


def test_the_chain_comes_first_in_its_order_and_the_picks_by_priority_and_name():
    library = Library(*(template(name) for name in ("z", "a", "p", "q", "r", "s/x", "s/y")))
    spec = group(
        templates=("z", "a"),
        template_selection=TemplateSelection(
            all_of=(choice("q", 5), choice("r", -1), choice("p", 5)), all_in_groups=(choice("s", 0),)
        ),
    )
    assert names(select_templates(spec, library, never)) == ["z", "a", "r", "s/x", "s/y", "p", "q"]


def test_one_of_takes_the_highest_priority_and_draws_only_among_equals():
    library = Library(*(template(name) for name in "abcd"))
    spec = group(
        template_selection=TemplateSelection(
            one_of=(choice("d", 1), choice("b", 3), choice("a", 3), choice("c", 2))
        )
    )
    drawn = [select_templates(spec, library, lambda count, n=n: n) for n in (0, 1)]
    assert [names(each) for each in drawn] == [["a"], ["b"]]
    assert [each.picks for each in drawn] == [("a",), ("b",)]
    alone = group(
        template_selection=TemplateSelection(one_of=(choice("a", 3), choice("b", 2), choice("a", 3)))
    )
    found = select_templates(alone, library, never)
    assert (names(found), found.picks) == (["a"], ())


def test_one_in_groups_draws_among_all_templates_of_the_groups_of_the_highest_priority():
    library = Library(*(template(name) for name in ("maps/a", "maps/b", "more/c", "low/d")))
    spec = group(
        template_selection=TemplateSelection(
            one_in_groups=(choice("more", 2), choice("maps", 2), choice("low", 1))
        )
    )
    counts: list[int] = []

    def draw(count: int) -> int:
        counts.append(count)
        return 2

    found = select_templates(spec, library, draw)
    assert (names(found), found.picks, counts) == (["more/c"], ("more/c",), [3])


def test_parents_lie_beneath_their_child_and_everything_is_laid_once():
    library = Library(
        template("base"),
        template("common", parents=("base",)),
        template("left", parents=("common",)),
        template("right", parents=("common", "base")),
    )
    assert names(select_templates(group(templates=("left", "right", "base")), library, never)) == [
        "base",
        "common",
        "left",
        "right",
    ]


def test_override_holds_for_a_choice_and_the_parents_it_brought():
    library = Library(template("base"), template("extra"), template("child", parents=("base", "extra")))
    spec = group(
        templates=("extra",),
        template_selection=TemplateSelection(all_of=(choice("child", override=False),)),
    )
    found = select_templates(spec, library, never)
    assert [(layer.record.name, layer.override) for layer in found.layers] == [
        ("extra", True),
        ("base", False),
        ("child", False),
    ]


def test_what_is_missing_is_named_with_its_field():
    library = Library(template("orphan", parents=("gone",)))
    cases = [
        (group(templates=("nobody",)), "templates/0", "nobody"),
        (group(templates=("orphan",)), "templates/0", "'orphan' has the parent 'gone'"),
    ]
    for kind in ("all_of", "one_of", "all_in_groups", "one_in_groups"):
        spec = group(template_selection=TemplateSelection(**{kind: (choice("missing"),)}))
        cases.append((spec, f"template_selection/{kind}/0", "missing"))
    for spec, field, text in cases:
        error = refusal(spec, library)
        assert (error.code, error.field) == (Code.TEMPLATE_NOT_FOUND, field)
        assert text in error.message


def test_all_that_are_missing_are_named_at_once():
    selection = TemplateSelection(one_of=(choice("c"), choice("a")))
    error = refusal(
        group(templates=("base", "b", "a"), template_selection=selection), Library(template("base"))
    )
    assert (error.message, error.field) == ("templates 'b', 'a', 'c' do not exist", "templates/1")


def test_a_missing_one_is_missed_even_if_another_would_have_been_drawn():
    spec = group(template_selection=TemplateSelection(one_of=(choice("a", 9), choice("gone", 1))))
    assert refusal(spec, Library(template("a"))).code is Code.TEMPLATE_NOT_FOUND


def test_a_circle_of_parents_is_shown():
    library = Library(
        template("start", parents=("a",)),
        template("a", parents=("b",)),
        template("b", parents=("c",)),
        template("c", parents=("a",)),
    )
    error = refusal(group(templates=("start",)), library)
    assert error.code is Code.TEMPLATE_CYCLE
    assert "a → b → c → a" in error.message


def test_new_parents_are_checked_before_they_are_stored():
    library = Library(template("a", parents=("b",)), template("b"), template("c"))
    check_parents("c", ("a", "b"), library)
    for name, parents, code in [
        ("b", ("a",), Code.TEMPLATE_CYCLE),
        ("b", ("b",), Code.TEMPLATE_CYCLE),
        ("new", ("new",), Code.TEMPLATE_CYCLE),
        ("c", ("b", "gone"), Code.TEMPLATE_NOT_FOUND),
    ]:
        with pytest.raises(Rejected) as caught:
            check_parents(name, parents, library)
        assert caught.value.code is code
        assert (caught.value.field or "").startswith("parents/")


def test_a_tower_of_parents_is_refused_and_not_climbed():
    tower = [template(f"t{n}", parents=(f"t{n + 1}",)) for n in range(5000)]
    assert refusal(group(templates=("t0",)), Library(*tower)).field == "templates/0"
    fits = [template(f"t{n}", parents=(f"t{n + 1}",)) for n in range(MAX_DEPTH - 1)]
    library = Library(*fits, template(f"t{MAX_DEPTH - 1}"))
    assert len(select_templates(group(templates=("t0",)), library, never).layers) == MAX_DEPTH


_LETTERS = "abcdefgh"
_GRAPHS = st.fixed_dictionaries({}, optional={name: st.sets(st.sampled_from(_LETTERS)) for name in _LETTERS})


@given(
    _GRAPHS,
    st.lists(st.sampled_from(_LETTERS), max_size=6),
    st.dictionaries(st.sampled_from(_LETTERS), st.integers(-2, 2)),
)
def test_every_order_puts_parents_first_and_no_template_twice(graph, chain, picked):
    # Only parents with a later letter: no circles.
    library = Library(
        *(
            template(name, parents=tuple(sorted(p for p in graph.get(name, ()) if p > name)))
            for name in _LETTERS
        )
    )
    spec = group(
        templates=tuple(chain),
        template_selection=TemplateSelection(all_of=tuple(choice(*each) for each in picked.items())),
    )
    order = names(select_templates(spec, library, never))
    assert len(order) == len(set(order))
    assert set(chain) | set(picked) <= set(order)
    for name in order:
        for parent in library.records[name].version().settings.parents:
            assert order.index(parent) < order.index(name)
