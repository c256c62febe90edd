"""Which files of modules go into the plan of a group: chosen by platform and version, and never by chance."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from template_world import Library, entry, group, never

from corral.domain.groups.extensions import ExtensionPackage, Program, fits, platform_version
from corral.domain.groups.group import ArtifactSpec, ExtensionSpec
from corral.domain.groups.group_documents import group_document, parse_group
from corral.domain.groups.plan_resolution import ResolvedPlan, resolve_plan
from corral.domain.modules.manifest import Extension, ExtensionVariant
from corral.errors import Code, Rejected

PAPER = entry("paper", "1.21.4-232")
VELOCITY = entry("velocity", "3.4.0-SNAPSHOT")
OWN = entry("luckperms", "5", file="LuckPerms.jar", url="")
ON_PAPER = group(artifact=ArtifactSpec(platform="paper", version="1.21.4-232"))


def variant(id: str = "any", *platforms: str, range: str = "*", place: str = "plugins/x.jar", **fields: str):
    digest = hashlib.sha256(f"{id}{platforms}{range}".encode()).hexdigest()
    return ExtensionVariant(
        id=id,
        platforms=platforms,
        version_range=range,
        install_path=place,
        **{"file": f"{id}.jar", "sha256": digest, **fields},
    )


def extension(id: str = "x", *variants: ExtensionVariant, **fields) -> Extension:
    return Extension(id=id, variants=variants or (variant(place=f"plugins/{id}.jar"),), **fields)


def package(
    module: str, *extensions: Extension, active: bool = True, proven: bool = True
) -> ExtensionPackage:
    return ExtensionPackage(module=module, active=active, proven=proven, extensions=extensions)


def resolved(*packages: ExtensionPackage, spec=ON_PAPER) -> ResolvedPlan:
    return resolve_plan(spec, Library(catalog=(PAPER, VELOCITY, OWN), packages=packages), never)


def asking(*specs: ExtensionSpec, spec=ON_PAPER):
    return parse_group({**group_document(spec), "extensions": [group_document(each) for each in specs]})


def request(id: str = "x", module: str = "stats", **fields: str) -> ExtensionSpec:
    return ExtensionSpec(id=id, module=module, **fields)


def chosen(*packages: ExtensionPackage, spec=ON_PAPER) -> list[tuple[str, str, str]]:
    return [(each.module, each.id, each.variant) for each in resolved(*packages, spec=spec).plan.extensions]


def refusal(*packages: ExtensionPackage, spec=ON_PAPER) -> Rejected:
    with pytest.raises(Rejected) as caught:
        resolved(*packages, spec=spec)
    return caught.value


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1.21.4", (1, 21, 4)),
        ("1.21", (1, 21, 0)),
        ("5", (5, 0, 0)),
        ("1.21.4-232", (1, 21, 4)),
        ("3.4.0-SNAPSHOT", (3, 4, 0)),
        ("2.0+build.7", (2, 0, 0)),
        ("1.20.1-R0.1-SNAPSHOT", (1, 20, 1)),
        ("1.2.3.4", (1, 2, 3)),
        ("007.01", (7, 1, 0)),
        ("24w14a", None),
        ("1.21b3", None),
        ("latest", None),
        ("", None),
    ],
)
def test_of_a_platforms_version_the_first_three_numbers_count(text, numbers):
    found = platform_version(text)
    assert (found and found.release) == numbers
    assert found is None or not found.prerelease


@pytest.mark.parametrize(
    ("made_for", "program", "fit"),
    [
        (variant(), Program(), True),
        (variant(), Program("paper", "1.21.4"), True),
        (variant("p", "paper"), Program("paper", "1.21.4"), True),
        (variant("p", "paper"), Program("velocity", "3.4.0"), False),
        (variant("p", "paper"), Program(), False),
        (variant("p", "paper", "folia"), Program("folia", "1.21.4"), True),
        (variant("p", "paper", range=">=1.20 <1.22"), Program("paper", "1.21.4-232"), True),
        (variant("p", "paper", range=">=1.22"), Program("paper", "1.21.4-232"), False),
        (variant("p", "velocity", range=">=3.3"), Program("velocity", "3.4.0-SNAPSHOT"), True),
        (variant("p", "paper", range="^1.20 || *"), Program("paper", "24w14a"), True),
        (variant("p", "paper", range=">=0"), Program("paper", "24w14a"), False),
        (variant(range=">=1"), Program(), False),
    ],
)
def test_a_variant_fits_by_platform_and_version(made_for, program, fit):
    assert fits(made_for, program) is fit


def test_what_goes_to_every_group_goes_where_a_variant_fits_and_is_told_where_none_does():
    stats = package("stats", extension("x", variant("p", "paper"), variant("v", "velocity")))
    assert chosen(stats) == [("stats", "x", "p")]
    on_velocity = group(artifact=ArtifactSpec(platform="velocity", version="3.4.0-SNAPSHOT"))
    assert chosen(stats, spec=on_velocity) == [("stats", "x", "v")]
    found = resolved(stats, spec=group())
    assert found.plan.extensions == ()
    (told,) = found.passed_over
    assert (told.subject, told.reason) == (
        "extension/stats/x",
        "no variant fits a program that is not of the catalog",
    )


def test_the_plan_holds_the_files_digest_and_place_and_that_the_controller_has_it():
    made = variant("p", "paper", place="plugins/Stats.jar")
    (found,) = resolved(package("stats", extension("x", made))).plan.extensions
    assert (found.artifact.file, found.artifact.url) == ("plugins/Stats.jar", "")
    assert found.artifact.sha256 == made.sha256


def test_a_variant_for_the_platform_goes_before_one_for_any():
    both = package("stats", extension("x", variant("a-any"), variant("p", "paper")))
    assert chosen(both) == [("stats", "x", "p")]
    assert chosen(both, spec=group()) == [("stats", "x", "a-any")]


@pytest.mark.parametrize("orders", [0, 1])
def test_a_tie_is_refused_with_both_names_and_the_way_out(orders):
    pair = (variant("new", "paper", range=">=1.21"), variant("old", "paper", "folia", range="<1.22"))
    stats = package("stats", extension("x", *(reversed(pair) if orders else pair), variant("any")))
    error = refusal(stats)
    assert (error.code, error.field) == (Code.EXTENSION_CONFLICT, "extensions")
    assert error.message == (
        "variants 'new' and 'old' of extension 'x' of module 'stats' both fit paper 1.21.4-232"
    )
    assert '"variant": "new"' in (error.hint or "")
    assert chosen(stats, spec=asking(request(variant="old"))) == [("stats", "x", "old")]
    assert refusal(stats, spec=asking(request())).field == "extensions/0"


def test_two_variants_for_any_program_are_a_tie_as_well():
    assert refusal(package("s", extension("x", variant("a"), variant("b")))).code is Code.EXTENSION_CONFLICT


def test_what_is_to_be_requested_goes_to_the_groups_that_name_it_only():
    stats = package("stats", extension("x", activation="requested"))
    assert chosen(stats) == []
    assert not resolved(stats).passed_over
    assert chosen(stats, spec=asking(request())) == [("stats", "x", "any")]


def test_what_goes_to_every_group_may_be_named_too_and_is_there_once():
    assert chosen(package("stats", extension("x")), spec=asking(request())) == [("stats", "x", "any")]


def test_a_module_that_is_not_wanted_active_adds_nothing():
    assert chosen(package("stats", extension("x"), active=False)) == []


@pytest.mark.parametrize(
    ("packages", "asked", "field", "told", "hint"),
    [
        ((), request(), "extensions/0/module", "which is not installed", "install it first"),
        ((package("stat"),), request(), "extensions/0/module", "not installed", "did you mean 'stat'?"),
        (
            (package("stats", extension("x"), active=False),),
            request(),
            "extensions/0/module",
            "which is not active",
            "activate or resume it",
        ),
        (
            (package("stats", extension("xx"), extension("y")),),
            request("xxx"),
            "extensions/0",
            "module 'stats' has no extension 'xxx'",
            "did you mean 'xx'? it has: xx, y",
        ),
        ((package("stats"),), request(), "extensions/0", "has no extension 'x'", "it has none"),
        (
            (package("stats", extension("x")),),
            request(variant="papr"),
            "extensions/0/variant",
            "extension 'x' of module 'stats' has no variant 'papr'",
            "it has: any",
        ),
        (
            (
                package(
                    "stats", extension("x", variant("v", "velocity"), variant("o", "paper", range="<1.20"))
                ),
            ),
            request(),
            "extensions/0",
            "no variant of extension 'x' of module 'stats' fits paper 1.21.4-232",
            "it has: o (for paper <1.20); v (for velocity *)",
        ),
        (
            (package("stats", extension("x", variant("v", "velocity"), variant("p", "paper"))),),
            request(variant="v"),
            "extensions/0",
            "variant 'v' of extension 'x' of module 'stats' does not fit paper 1.21.4-232",
            "it has: p (for paper *); v (for velocity *)",
        ),
    ],
)
def test_what_a_group_asks_for_and_cannot_have_is_refused_with_its_field(packages, asked, field, told, hint):
    error = refusal(*packages, spec=asking(asked))
    assert (error.code, error.field) == (Code.EXTENSION_NOT_FOUND, field)
    assert told in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize("names", ["first", "second", "both"])
def test_extensions_that_rule_each_other_out_are_refused_with_both_modules(names):
    first = extension("a", conflicts=("b",) if names != "second" else ())
    second = extension("b", conflicts=("a",) if names != "first" else ())
    error = refusal(package("one", first), package("two", second))
    assert (error.code, error.field) == (Code.EXTENSION_CONFLICT, "extensions")
    for word in ("'a'", "'b'", "module 'one'", "module 'two'"):
        assert word in error.message


def test_a_conflict_counts_only_with_what_is_really_there():
    rival = extension("b", variant("v", "velocity"))
    alone = extension("a", variant(place="a.jar"), conflicts=("b", "c"))
    assert chosen(package("one", alone), package("two", rival)) == [("one", "a", "any")]
    own = ExtensionSpec(id="c", artifact=ArtifactSpec(platform="luckperms", version="5"), install_path="p")
    error = refusal(package("one", alone), spec=asking(own))
    assert "cannot be together with extension 'c'" in error.message


def test_two_modules_at_one_place_are_refused():
    error = refusal(
        package("one", extension("a", variant(place="plugins/x.jar"))),
        package("two", extension("b", variant(place="Plugins/X.jar"))),
    )
    assert error.code is Code.EXTENSION_CONFLICT
    assert "module 'one'" in error.message
    assert "module 'two'" in error.message


def test_a_groups_own_file_under_the_name_of_a_modules_takes_its_place():
    own = ExtensionSpec(
        id="x", module="stats", artifact=ArtifactSpec(platform="luckperms", version="5"), install_path="."
    )
    (found,) = resolved(package("stats", extension("x")), spec=asking(own)).plan.extensions
    assert found.artifact.file == "LuckPerms.jar"


def test_the_groups_own_order_comes_first():
    own = ExtensionSpec(id="luck", artifact=ArtifactSpec(platform="luckperms", version="5"), install_path=".")
    found = chosen(
        package("b", extension("b2"), extension("b1")),
        package("a", extension("a1"), extension("z", activation="requested")),
        spec=asking(request("z", "a"), own),
    )
    assert found == [
        ("a", "z", "any"), ("", "luck", ""), ("a", "a1", "any"), ("b", "b1", "any"), ("b", "b2", "any"),
    ]  # fmt: skip


@pytest.mark.trap("T26")
def test_a_place_outside_of_the_directory_is_refused_even_from_a_stored_manifest():
    for place in ("../x.jar", "/etc/x.jar", "a/../../x"):
        error = refusal(package("stats", extension("x", variant(place=place))))
        assert error.code is Code.PATH_REFUSED


@pytest.mark.parametrize(
    ("document", "code", "field"),
    [
        ({"id": "x"}, Code.MISSING_FIELD, "extensions/0/artifact"),
        ({"id": "x", "install_path": "p"}, Code.MISSING_FIELD, "extensions/0/artifact"),
        ({"id": "x", "module": "m", "install_path": "p"}, Code.INVALID_FIELD, "extensions/0/install_path"),
        (
            {"id": "x", "artifact": {"platform": "p", "version": "1"}},
            Code.MISSING_FIELD,
            "extensions/0/install_path",
        ),
    ],
)
def test_a_groups_entry_is_an_artifact_with_its_place_or_a_modules(document, code, field):
    with pytest.raises(Rejected) as caught:
        parse_group({"name": "lobby", "command": ["x"], "extensions": [document]})
    assert (caught.value.code, caught.value.field) == (code, field)


def test_a_request_reads_back_from_its_document():
    spec = asking(request())
    assert parse_group(group_document(spec)) == spec


_variants = st.builds(
    lambda name, on, let: variant(name, *on, range=let, place=f"plugins/{name}.jar"),
    st.sampled_from("abc"),
    st.lists(st.sampled_from(["paper", "velocity"]), max_size=2, unique=True),
    st.sampled_from(["*", ">=1.20", "<1.20", "^1.21", "~3.4"]),
)
_extensions = st.builds(
    lambda name, variants, activation, conflicts: extension(
        name, *variants, activation=activation, conflicts=tuple(conflicts - {name})
    ),
    st.sampled_from(["e1", "e2", "e3"]),
    st.lists(_variants, min_size=1, max_size=3, unique_by=lambda each: each.id),
    st.sampled_from(["always", "requested"]),
    st.frozensets(st.sampled_from(["e1", "e2", "e3"]), max_size=1),
)
_packages = st.lists(
    st.builds(
        lambda module, extensions, active: package(module, *extensions, active=active),
        st.sampled_from(["m1", "m2", "m3"]),
        st.lists(_extensions, max_size=3, unique_by=lambda each: each.id),
        st.booleans(),
    ),
    max_size=3,
    unique_by=lambda each: each.module,
)


@given(packages=_packages, asked=st.booleans())
def test_in_which_order_modules_extensions_and_variants_are_known_makes_no_difference(packages, asked):
    spec = asking(request("e1", "m1")) if asked else ON_PAPER

    def outcome(known):
        try:
            found = resolved(*known, spec=spec)
        except Rejected as error:
            return error.code, error.message, error.hint, error.field
        return found.record.hash, found.passed_over

    expected = outcome(packages)
    for order in itertools.permutations(packages):
        turned = [
            package(
                each.module,
                *(
                    Extension(
                        id=part.id,
                        activation=part.activation,
                        conflicts=part.conflicts,
                        variants=part.variants[::-1],
                    )
                    for part in reversed(each.extensions)
                ),
                active=each.active,
            )
            for each in order
        ]
        assert outcome(turned) == expected


@pytest.mark.parametrize("spec", [ON_PAPER, asking(request())], ids=["always", "asked"])
def test_nothing_of_a_module_whose_signature_does_not_hold_goes_anywhere(spec):
    kind = "always" if spec is ON_PAPER else "requested"
    with pytest.raises(Rejected) as refused:
        chosen(package("stats", extension(activation=kind), proven=False), spec=spec)
    assert refused.value.code is Code.SIGNATURE_VERIFICATION_FAILED
    assert "module 'stats'" in str(refused.value)


def test_a_module_whose_signature_does_not_hold_stands_in_nobodys_way_whom_it_would_give_nothing():
    bare = package("stats", extension("x", variant("v", "velocity")), proven=False)
    idle = package("idle", extension(), active=False, proven=False)
    assert chosen(bare, idle) == []
