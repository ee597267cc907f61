"""Things that wait, in groups that take turns."""

from dataclasses import dataclass

from gnats.runtime.rotation import Rotation


@dataclass
class Thing:
    name: str
    waits: bool = True


def filled(*groups: str) -> tuple[Rotation[Thing], dict[str, Thing]]:
    """Add a thing for each letter: a1 and a2 are the first two of the group a."""
    rotation, things = Rotation[Thing](), dict[str, Thing]()
    for group in groups:
        thing = Thing(f"{group}{1 + sum(name.startswith(group) for name in things)}")
        things[thing.name] = thing
        rotation.add(thing, group)
    return rotation, things


def taken(rotation: Rotation[Thing], *busy: str) -> list[str]:
    """Take things until there is none whose group is not busy."""
    names = []
    while thing := rotation.next(lambda group: group in busy):
        names.append(thing.name)
    return names


def test_groups_take_turns_and_the_things_of_each_come_in_order() -> None:
    rotation, _ = filled(*"aaaabbc")
    assert taken(rotation) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]
    assert not rotation


def test_a_busy_group_keeps_its_things_and_its_place() -> None:
    rotation, _ = filled(*"aabbc")
    assert taken(rotation, "a", "c") == ["b1", "b2"]
    assert rotation
    assert taken(rotation) == ["a1", "c1", "a2"]


def test_what_has_ceased_to_wait_takes_no_turn() -> None:
    rotation, things = filled(*"aabcc")
    for name in ("a1", "b1", "c2"):
        things[name].waits = False
    assert taken(rotation) == ["a2", "c1"]
    assert not rotation
