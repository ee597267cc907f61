"""Templates in scoped permissions, expanded for a user."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.core.subjects.subject import valid_subject
from gnats.jwt.claims import Permission, User, UserClaims, UserPermissionLimits
from gnats.jwt.templates import MAX_EXPANSIONS, TemplateError, expand

pytestmark = pytest.mark.timeout(60)

TAGS = ("team:red", "team:blue", "zone:7", "odd:a b")


def expanded(
    allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), tags: tuple[str, ...] = TAGS
) -> Permission:
    user = UserClaims(name="Ann", sub="U1", nats=User(tags=tags, issuer_account="A1"))
    template = UserPermissionLimits(pub=Permission(allow=allow or None, deny=deny or None), subs=5)
    done = expand(template, user, "Acme", ("region:eu", "region:us"))
    assert done.subs == 5
    return done.pub


SUBJECTS = [
    ("plain.>", ["plain.>"]),
    ("{{name()}}", ["Ann"]),
    ("{{ NAME() }}.x", ["Ann.x"]),
    ("{{subject()}}.{{account-subject()}}.{{account-name()}}", ["U1.A1.Acme"]),
    ("a.{{tag(team)}}", ["a.red", "a.blue"]),
    ("{{tag(TEAM)}}.{{tag(zone)}}", ["red.7", "blue.7"]),
    ("{{tag(team)}}.{{account-tag(region)}}", ["red.eu", "red.us", "blue.eu", "blue.us"]),
    ("{{name()}}.{{tag(zone)}}", ["Ann.7"]),
    ("{{tag(none)}}.x", []),
    ("x.{{tag(odd)}}", []),
    ("{{TAG(team)}}", []),
]


@pytest.mark.parametrize(("subject", "becomes"), SUBJECTS)
def test_subjects_become(subject: str, becomes: list[str]) -> None:
    assert list(expanded((subject, "rest")).allow or ()) == [*becomes, "rest"]


def test_what_is_not_a_template_is_left_alone() -> None:
    untouched = expanded(("a..b", "x q"), ("y z q",))
    assert (untouched.allow, untouched.deny) == (("a..b", "x q"), ("y z q",))


def test_nothing_left_to_allow_means_nothing_allowed() -> None:
    assert expanded(("{{tag(none)}}",)).deny == (">",)
    assert expanded(("{{tag(none)}}",), ("a",)).deny == ("a", ">")
    assert expanded(("{{tag(none)}}",), (">",)).deny == (">",)


@pytest.mark.parametrize("subject", ["{{tag(none)}}", "x.{{tag(odd)}}", "{{tag(team)}}..x", "{{name()}} x"])
def test_what_is_denied_must_not_vanish(subject: str) -> None:
    with pytest.raises(TemplateError):
        expanded((), (subject,))


@pytest.mark.parametrize("subject", ["{{nam()}}", "{{tag(team}}", "{{tag team}}", "{{{name()}}}"])
def test_what_is_not_a_function_is_refused(subject: str) -> None:
    with pytest.raises(TemplateError):
        expanded((f"a.{subject}",))


def test_expansion_is_bounded() -> None:
    tags = tuple(f"t:{number}" for number in range(64))
    assert len(expanded(("{{tag(t)}}.{{ tag(t) }}",), tags=tags).allow or ()) == 64 * 64 == MAX_EXPANSIONS
    with pytest.raises(TemplateError):
        expanded(("{{tag(t)}}.{{ tag(t) }}", "{{tag(t)}}"), tags=tags)
    with pytest.raises(TemplateError):
        expanded((".".join(["{{tag(t)}}"] * 50),), tags=tags)


words = st.text("ab", min_size=1, max_size=2)


@given(st.lists(words, max_size=4, unique=True), st.lists(words, max_size=4, unique=True))
def test_tags_stand_for_all_combinations(first: list[str], second: list[str]) -> None:
    tags = (*(f"x:{value}" for value in first), *(f"y:{value}" for value in second))
    allowed = expanded(("{{tag(x)}}.{{tag(y)}}.end",), tags=tags).allow or ()
    model = [f"{a}.{b}.end" for a, b in itertools.product(first, second)]
    assert list(allowed) == model
    assert all(valid_subject(subject) for subject in allowed)
