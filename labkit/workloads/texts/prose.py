"""Generated prose: short stories of loosely linked sentences; the least predictable of the kinds."""

from random import Random

from labkit.workloads.texts.lexicon import ADJECTIVES, ADVERBS, NAMES, NOUNS, PLACES, PLANS, VERBS, invented

_OPENINGS = (
    "One morning",
    "Long ago",
    "Last spring",
    "After the storm",
    "On market day",
    "Before sunrise",
    "In the third week",
    "When the river froze",
    "That same evening",
    "Years later",
    "At the end of the summer",
    "While the others slept",
    "On the first day of school",
    "During the long drought",
)
_LINKS = (
    "Then",
    "Because of that",
    "Still",
    "Meanwhile",
    "At last",
    "Even so",
    "Soon",
    "Nobody knew why, but",
    "A little later",
    "To everyone's surprise",
    "As usual",
    "Without a word",
    "In the meantime",
    "Of course",
)
_SAYINGS = (
    "I have never seen anything like it",
    "we should leave before noon",
    "this is not what I ordered",
    "someone was here before us",
    "there is still time",
    "you may keep it",
    "it was worth the trouble",
    "nobody will believe us",
    "the answer was here all along",
    "I would do it again",
    "bring it back when you are done",
    "it only works when it rains",
    "that was my mother's",
)
_FEELINGS = ("tired", "glad", "curious", "worried", "proud", "calm", "restless", "certain", "puzzled", "hopeful")


def _noun_phrase(rng: Random, words: list[str] | None) -> str:
    noun = rng.choice(words).lower() if words and rng.random() < 0.35 else rng.choice(NOUNS)
    if rng.random() < 0.06:
        noun = invented(rng)
    article = rng.choice(("the", "the", "a", "one", "every", "another"))
    if rng.random() < 0.6:
        return f"{article} {rng.choice(ADJECTIVES)} {noun}"
    return f"{article} {noun}"


def _saying(rng: Random) -> str:
    words = rng.choice(_SAYINGS)
    return words[0].upper() + words[1:]


def _sentence(rng: Random, cast: list[str], place: str, words: list[str] | None) -> str:
    who, other = rng.sample(cast, 2)
    verb, thing = rng.choice(VERBS), _noun_phrase(rng, words)
    shape = rng.randrange(10)
    if shape == 0:
        return f"{who} {verb} {thing} and {rng.choice(VERBS)} {_noun_phrase(rng, words)}."
    if shape == 1:
        return f"{rng.choice(_LINKS)} {who} {rng.choice(ADVERBS)} {verb} {thing} near the {rng.choice(PLACES)}."
    if shape == 2:
        return f'"{_saying(rng)}," said {who}.'
    if shape == 3:
        return f"{who} wanted {rng.choice(PLANS)}, but {other} {verb} {thing}."
    if shape == 4:
        return f"In the {place} there was {thing}, {rng.choice(ADJECTIVES)} and {rng.choice(ADJECTIVES)}."
    if shape == 5:
        return f"{who} felt {rng.choice(_FEELINGS)} when {other} {verb} {thing}."
    if shape == 6:
        return f"It took {who} {rng.randrange(2, 90)} days {rng.choice(PLANS)}."
    if shape == 7:
        return f'{other} asked {who} about {thing}. "{_saying(rng)}," came the answer.'
    if shape == 8:
        link, where, how = rng.choice(_LINKS), rng.choice(PLACES), rng.choice(ADJECTIVES)
        return f"{link} they {verb} {thing}, and the {where} was {how} again."
    return f"{who} {verb} {thing}; {other} {rng.choice(VERBS)} it {rng.choice(ADVERBS)}."


def prose(rng: Random, words: list[str] | None = None) -> tuple[str, str]:
    """-> (request, story). `words` adds a larger lexicon to the built-in one (training passes one)."""
    cast = rng.sample(NAMES, rng.choice((2, 3, 3, 4)))
    place, theme = rng.choice(PLACES), rng.choice(NOUNS)
    sentences = rng.randrange(5, 22)
    request = rng.choice(
        (
            f"Write a story of {sentences} sentences about {cast[0]} and {cast[1]} at the {place}.",
            f"Tell a story about {cast[0]}, {cast[1]} and a {theme}.",
            f"Write a short story that takes place in a {place}.",
        )
    )
    opening = (
        f"{rng.choice(_OPENINGS)}, {cast[0]} {rng.choice(VERBS)} a {rng.choice(ADJECTIVES)} {theme} at the {place}."
    )
    return request, " ".join([opening] + [_sentence(rng, cast, place, words) for _ in range(sentences - 1)])
