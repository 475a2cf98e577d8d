"""The frames of the embedded corpus, and what fills their slots.

How frames are written: words that translate each other carry the same tag letter after
"~"; "{name}" is a slot, the same on both sides; "hat/haben" is the verb's singular and
plural, after the slot `person`. So a sentence's alignment follows from its frame.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class Value(NamedTuple):
    """What fills a slot: tagged words on both sides."""

    source: str
    target: str
    plural: bool = False


# Slots: functions of a random generator, each returning a `Value`.

Slot = Callable[[random.Random], Value]


def _parallel(english: str, german: str, plural: bool = False) -> Value:
    """Aligns word i with word i."""
    return Value(_tagged(english, "abcd"), _tagged(german, "abcd"), plural)


def _joint(english: str, german: str) -> Value:
    """Aligns every word with every word."""
    return Value(
        _tagged(english, itertools.repeat("a")), _tagged(german, itertools.repeat("a"))
    )


def _tagged(text: str, tags: Iterable[str]) -> str:
    # Babel puts no-break spaces into numbers; a word here ends at any space.
    return " ".join(
        f"{word}~{tag}" for word, tag in zip(text.split(), tags, strict=False)
    )


def _nouns(nouns: Mapping[str, str], case: str) -> Slot:
    """Nouns with their articles; of the articles only "der" changes, to "den"."""
    values = []
    for english, german in nouns.items():
        article, noun = german.split()
        if case == "accusative" and article == "der":
            article = "den"
        values.append(Value(f"the~a {_tagged(english, 'bb')}", f"{article}~a {noun}~b"))
    return lambda rng: rng.choice(values)


def _names(names: Mapping[str, str]) -> Slot:
    return _one_of([_parallel(english, german) for english, german in names.items()])


def _one_of(values: list[Value]) -> Slot:
    return lambda rng: rng.choice(values)


def _date(english: str, german: str) -> Slot:
    """Dates written with the CLDR's field letters, each field with its tag."""

    @functools.cache
    def value(ordinal: int) -> Value:
        day = datetime.date.fromordinal(ordinal)
        return Value(_fields(day, english, "en_US"), _fields(day, german, "de_DE"))

    first, last = datetime.date(1990, 1, 1), datetime.date(2029, 12, 31)
    return lambda rng: value(rng.randint(first.toordinal(), last.toordinal()))


def _fields(day: datetime.date, template: str, locale: str) -> str:
    from babel.dates import format_date

    fields = (field.split("~") for field in template.split())
    return " ".join(f"{format_date(day, f, locale=locale)}~{tag}" for f, tag in fields)


def _clock(hours: range) -> Slot:
    return lambda rng: _clock_value(rng.choice(hours), 5 * rng.randrange(12))


@functools.cache
def _clock_value(hour: int, minute: int) -> Value:
    from babel.dates import format_time

    time = datetime.time(hour, minute)
    digits, half = format_time(time, "h:mm a", locale="en_US").split()
    german = format_time(time, "short", locale="de_DE")
    return Value(f"{digits}~a {half}~ab", f"{german}~a Uhr~b")


def _spoken_time(rng: random.Random) -> Value:
    hour = rng.randint(1, 12)
    english, german = rng.choice(SPOKEN_TIMES)
    return Value(
        english.format(**_hours(hour, "en")), german.format(**_hours(hour, "de"))
    )


def _hours(hour: int, language: str) -> dict[str, str]:
    this, following = _spelled(hour, language), _spelled(hour % 12 + 1, language)
    return {"this": this, "next": following, "full": this.replace("eins", "ein")}


@functools.cache
def _spelled(number: int, language: str, to: str = "cardinal") -> str:
    from num2words import num2words

    return num2words(number, lang=language, to=to).replace(" and ", " ")


def _number(rng: random.Random, most: int = 999) -> Value:
    """A number in words, from 2, but none that ends in 01: German inflects those."""
    number = rng.randint(2, 99) if rng.random() < 0.7 else rng.randint(2, most)
    number += number % 100 == 1
    return _joint(_spelled(number, "en"), _spelled(number, "de"))


def _amount(rng: random.Random) -> Value:
    """An amount of money in words."""
    number = _number(rng)
    english, german, cents, hundredths = rng.choice(CURRENCY_NAMES)
    source, target = f"{number.source} {english}~b", f"{number.target} {german}~b"
    if rng.random() < 0.5:
        return Value(source, target)
    n = rng.randrange(5, 100, 5)
    return Value(
        f"{source} and~c {_spelled(n, 'en')}~d {cents}~e",
        f"{target} und~c {_spelled(n, 'de')}~d {hundredths}~e",
    )


def _price(rng: random.Random) -> Value:
    """An amount of money in digits: "$12.50", "12,50 $"."""
    from babel.numbers import format_currency

    whole = rng.randint(2, 99) if rng.random() < 0.5 else rng.randint(2, 999)
    value = whole + rng.choice([0, 25, 50, 75, 95, 99]) / 100
    currency = rng.choice(["USD", "EUR", "GBP"])
    return _joint(*(format_currency(value, currency, locale=tag) for tag in LOCALES))


def _measure(unit: str, numbers: list[float]) -> Slot:
    """A number with its unit: "12.5 kilometers", "12,5 Kilometer"."""

    @functools.cache
    def value(number: float) -> Value:
        from babel.units import format_unit

        return _parallel(
            *(format_unit(number, unit, "long", locale=tag) for tag in LOCALES)
        )

    return lambda rng: value(rng.choice(numbers))


def _percentage(rng: random.Random) -> Value:
    from babel.numbers import format_percent

    share = rng.randrange(5, 1000, 5) / 1000
    texts = (
        format_percent(share, locale=tag, decimal_quantization=False) for tag in LOCALES
    )
    return _joint(*texts)


def _inhabitants(rng: random.Random) -> Value:
    from babel.numbers import format_decimal

    number = rng.randrange(2000, 100_000, 500)
    return _joint(*(format_decimal(number, locale=tag) for tag in LOCALES))


def _ordinal(ending: str) -> Slot:
    """An ordinal in words, with the German ending."""

    def slot(rng: random.Random) -> Value:
        number = rng.randint(1, 31)
        german = _spelled(number, "de", "ordinal").removesuffix("e") + ending
        return _joint(_spelled(number, "en", "ordinal"), german)

    return slot


LOCALES = ("en_US", "de_DE")

PERSONS = [
    _parallel("she", "sie"),
    _parallel("he", "er"),
    _parallel("we", "wir", plural=True),
    _parallel("they", "sie", plural=True),
    _parallel("Anna", "Anna"),
    _parallel("Peter", "Peter"),
    _parallel("my sister", "meine Schwester"),
    _parallel("my brother", "mein Bruder"),
    _parallel("my parents", "meine Eltern", plural=True),
    _parallel("our neighbors", "unsere Nachbarn", plural=True),
    _parallel("the teacher", "der Lehrer"),
    _parallel("the students", "die Studenten", plural=True),
    _parallel("the tourists", "die Touristen", plural=True),
]
EVENTS = {
    "meeting": "die Besprechung",
    "concert": "das Konzert",
    "exam": "die Prüfung",
    "lecture": "die Vorlesung",
    "film": "der Film",
    "party": "die Feier",
    "interview": "das Interview",
    "course": "der Kurs",
    "game": "das Spiel",
    "conference": "die Konferenz",
}
VEHICLES = {
    "train": "der Zug",
    "bus": "der Bus",
    "ferry": "die Fähre",
    "tram": "die Straßenbahn",
    "night train": "der Nachtzug",
    "ship": "das Schiff",
}
GOODS = {
    "book": "das Buch",
    "lamp": "die Lampe",
    "coat": "der Mantel",
    "bicycle": "das Fahrrad",
    "table": "der Tisch",
    "phone": "das Telefon",
    "clock": "die Uhr",
    "suitcase": "der Koffer",
    "picture": "das Bild",
    "camera": "die Kamera",
    "chair": "der Stuhl",
    "guitar": "die Gitarre",
}
THINGS = {
    "books": "Bücher",
    "apples": "Äpfel",
    "eggs": "Eier",
    "cups": "Tassen",
    "bottles": "Flaschen",
    "chairs": "Stühle",
    "stamps": "Briefmarken",
    "pictures": "Bilder",
    "letters": "Briefe",
}
FOODS = {
    "flour": "Mehl",
    "sugar": "Zucker",
    "butter": "Butter",
    "rice": "Reis",
    "cheese": "Käse",
    "honey": "Honig",
    "salt": "Salz",
}
CITIES = {
    "Berlin": "Berlin",
    "Vienna": "Wien",
    "Munich": "München",
    "Cologne": "Köln",
    "Hamburg": "Hamburg",
    "Paris": "Paris",
    "Rome": "Rom",
    "Prague": "Prag",
    "Brussels": "Brüssel",
    "Lisbon": "Lissabon",
}
CURRENCY_NAMES = [
    ("dollars", "Dollar", "cents", "Cent"),
    ("euros", "Euro", "cents", "Cent"),
    ("pounds", "Pfund", "pence", "Pence"),
]
# German counts the half hour, and what is near it, towards the next hour.
SPOKEN_TIMES = [
    ("{this}~a o'clock~b", "{full}~a Uhr~b"),
    ("five~a past~b {this}~c", "fünf~a nach~b {this}~c"),
    ("ten~a past~b {this}~c", "zehn~a nach~b {this}~c"),
    ("a~a quarter~a past~b {this}~c", "Viertel~a nach~b {this}~c"),
    ("twenty~a past~b {this}~c", "zwanzig~a nach~b {this}~c"),
    ("twenty-five~a past~a {this}~b", "fünf~a vor~a halb~a {next}~b"),
    ("half~a past~a {this}~b", "halb~a {next}~b"),
    ("twenty-five~a to~a {next}~b", "fünf~a nach~a halb~a {next}~b"),
    ("twenty~a to~b {next}~c", "zwanzig~a vor~b {next}~c"),
    ("a~a quarter~a to~b {next}~c", "Viertel~a vor~b {next}~c"),
    ("ten~a to~b {next}~c", "zehn~a vor~b {next}~c"),
    ("five~a to~b {next}~c", "fünf~a vor~b {next}~c"),
]

SLOTS: dict[str, Slot] = {
    "person": _one_of(PERSONS),
    "event": _nouns(EVENTS, "nominative"),
    "event_acc": _nouns(EVENTS, "accusative"),
    "vehicle": _nouns(VEHICLES, "nominative"),
    "vehicle_acc": _nouns(VEHICLES, "accusative"),
    "goods": _nouns(GOODS, "nominative"),
    "goods_acc": _nouns(GOODS, "accusative"),
    "things": _names(THINGS),
    "food": _one_of([_joint(f"of {food}", name) for food, name in FOODS.items()]),
    "city": _names(CITIES),
    "weekday": _date("EEEE~a", "EEEE~a"),
    "month": _date("MMMM~a", "MMMM~a"),
    "year": _date("y~a", "y~a"),
    "day": _date("MMMM~a d~b", "d.~b MMMM~a"),
    "day_year": _date("MMMM~a d,~b y~c", "d.~b MMMM~a y~c"),
    "date": _date("EEEE,~a MMMM~b d,~c y~d", "EEEE,~a 'dem'~c d.~c MMMM~b y~d"),
    "date_nom": _date("EEEE,~a MMMM~b d,~c y~d", "EEEE,~a 'der'~c d.~c MMMM~b y~d"),
    "weekday_day": _date("EEEE,~a MMMM~b d~c", "EEEE,~a 'dem'~c d.~c MMMM~b"),
    "clock": _clock(range(6, 23)),
    "morning": _clock(range(6, 12)),
    "evening": _clock(range(15, 23)),
    "time": _spoken_time,
    "number": _number,
    "few": lambda rng: _number(rng, most=99),
    "amount": _amount,
    "price": _price,
    "percentage": _percentage,
    "inhabitants": _inhabitants,
    "ordinal": _ordinal("en"),
    "ordinal_e": _ordinal("e"),
    "temperature": _measure("temperature-celsius", list(range(-15, 31))),
    "distance": _measure("length-kilometer", [n / 2 for n in range(3, 100)]),
    "weight": _measure("mass-kilogram", [n / 2 for n in range(3, 60)]),
    "grams": _measure("mass-gram", list(range(50, 1000, 25))),
    "liters": _measure("volume-liter", [n / 2 for n in range(3, 30)]),
    "minutes": _measure("duration-minute", list(range(2, 60))),
}

FRAMES = [
    ("{event} starts~a at~b {clock}", "{event} beginnt~a um~b {clock}"),
    (
        "{event} is~a on~b {date} at~c {clock}",
        "{event} ist~a am~b {date}, um~c {clock}",
    ),
    ("{event} takes~a place~a on~b {date}", "{event} findet~a am~b {date}, statt~a"),
    (
        "{event} ends~a on~b {weekday_day} at~c {clock}",
        "{event} endet~a am~b {weekday_day}, um~c {clock}",
    ),
    (
        "on~a {day}, {event} will~b start~c at~d {clock}",
        "am~a {day} wird~b {event} um~d {clock} beginnen~c",
    ),
    ("does~a {vehicle} leave~a at~b {clock}?", "fährt~a {vehicle} um~b {clock} ab?~a"),
    ("{vehicle} leaves~a at~b {clock}", "{vehicle} fährt~a um~b {clock} ab~a"),
    ("{vehicle} arrives~a at~b {time}", "{vehicle} kommt~a um~b {time} an~a"),
    (
        "I~a know~b that~c {vehicle} leaves~d at~e {clock}",
        "ich~a weiß,~b dass~c {vehicle} um~e {clock} abfährt~d",
    ),
    (
        "{vehicle} to~a {city} leaves~b at~c {time}",
        "{vehicle} nach~a {city} fährt~b um~c {time} ab~b",
    ),
    ("it~a is~b {time} in~c {city}", "in~c {city} ist~b es~a {time}"),
    (
        "it~a was~b already~c {time} when~d {vehicle} arrived~e",
        "es~a war~b schon~c {time}, als~d {vehicle} ankam~e",
    ),
    (
        "please~a call~b me~c at~d {time} on~e {weekday}",
        "bitte~a rufen~b Sie~b mich~c am~e {weekday} um~d {time} an~b",
    ),
    (
        "{person} woke~a up~a at~b {time} on~c {weekday}",
        "{person} ist/sind~a am~c {weekday} um~b {time} aufgewacht~a",
    ),
    ("today~a is~b {date_nom}", "heute~a ist~b {date_nom}"),
    (
        "{person} was/were~a born~b on~c {day_year}",
        "{person} wurde/wurden~a am~c {day_year} geboren~b",
    ),
    (
        "the~a museum~b is~c open~d from~e {morning} to~f {evening}",
        "das~a Museum~b ist~c von~e {morning} bis~f {evening} geöffnet~d",
    ),
    (
        "{person} wants/want~a to~b fly~b to~c {city} on~d {day}",
        "{person} will/wollen~a am~d {day} nach~c {city} fliegen~b",
    ),
    (
        "{person} moved~a to~b {city} in~c {month} {year}",
        "{person} ist/sind~a im~c {month} {year} nach~b {city} gezogen~a",
    ),
    (
        "{person} has/have~a lived~a in~b {city} since~c {year}",
        "{person} wohnt/wohnen~a seit~c {year} in~b {city}",
    ),
    (
        "{person} paid~a {price} for~b {goods_acc}",
        "{person} hat/haben~a {price} für~b {goods_acc} bezahlt~a",
    ),
    (
        "{person} paid~a {amount} for~b {goods_acc}",
        "{person} hat/haben~a {amount} für~b {goods_acc} bezahlt~a",
    ),
    ("{goods} costs~a {price}", "{goods} kostet~a {price}"),
    ("{goods} costs~a {amount}", "{goods} kostet~a {amount}"),
    (
        "{person} bought~a {goods_acc} for~b {amount}",
        "{person} hat/haben~a {goods_acc} für~b {amount} gekauft~a",
    ),
    (
        "{person} will~a sell~b {goods_acc} for~c {price}",
        "{person} wird/werden~a {goods_acc} für~c {price} verkaufen~b",
    ),
    (
        "{person} thinks/think~a that~b {goods} costs~c {price}",
        "{person} glaubt,/glauben,~a dass~b {goods} {price} kostet~c",
    ),
    (
        "if~a {goods} costs~b {amount}, {person} will~c buy~d nothing~e",
        "wenn~a {goods} {amount} kostet,~b wird/werden~c {person} nichts~e kaufen~d",
    ),
    (
        "there~a were~a {number} people~b in~c the~c hall~d on~e {weekday}",
        "am~e {weekday} waren~a im~c Saal~d {number} Personen~b",
    ),
    (
        "{person} counted~a {number} {things}",
        "{person} hat/haben~a {number} {things} gezählt~a",
    ),
    (
        "{person} needs/need~a {few} {things} by~b {day}",
        "{person} braucht/brauchen~a bis~b zum~b {day} {few} {things}",
    ),
    (
        "{person} ordered~a {few} {things} on~b {weekday}",
        "{person} hat/haben~a am~b {weekday} {few} {things} bestellt~a",
    ),
    (
        "the~a town~b had~c {inhabitants} inhabitants~d in~e {year}",
        "im~e Jahr~e {year} hatte~c die~a Stadt~b {inhabitants} Einwohner~d",
    ),
    (
        "the~a temperature~b in~c {city} was~d {temperature} on~e {weekday}",
        "am~e {weekday} betrug~d die~a Temperatur~b in~c {city} {temperature}",
    ),
    (
        "on~a {weekday} it~b was~c only~d {temperature} in~e {city}",
        "am~a {weekday} waren~c es~b in~e {city} nur~d {temperature}",
    ),
    (
        "the~a village~b is~c {distance} away~d from~e {city}",
        "das~a Dorf~b ist~c {distance} von~e {city} entfernt~d",
    ),
    (
        "{person} walked~a {distance} on~b {weekday}",
        "{person} ist/sind~a am~b {weekday} {distance} gelaufen~a",
    ),
    (
        "{person} waited~a {minutes} for~b {vehicle_acc}",
        "{person} hat/haben~a {minutes} auf~b {vehicle_acc} gewartet~a",
    ),
    ("{goods} weighs~a {weight}", "{goods} wiegt~a {weight}"),
    (
        "{person} drank~a {liters} of~b water~b on~c {weekday}",
        "{person} hat/haben~a am~c {weekday} {liters} Wasser~b getrunken~a",
    ),
    (
        "please~a buy~b {grams} {food} by~c {weekday}",
        "bitte~a kaufen~b Sie~b bis~c {weekday} {grams} {food}",
    ),
    (
        "because~a {vehicle} was~b {minutes} late,~c {person} missed~d {event_acc}",
        "weil~a {vehicle} {minutes} Verspätung~c hatte,~b hat/haben~d {person} "
        "{event_acc} verpasst~d",
    ),
    (
        "{person} has/have~a lived~a on~b the~b {ordinal} floor~c since~d {year}",
        "{person} wohnt/wohnen~a seit~d {year} im~b {ordinal} Stock~c",
    ),
    (
        "{person} sat~a in~b the~c {ordinal} row~d on~e {weekday}",
        "{person} hat/haben~a am~e {weekday} in~b der~c {ordinal} Reihe~d gesessen~a",
    ),
    (
        "{person} answered~a the~b {ordinal_e} question~c on~d {weekday}",
        "{person} hat/haben~a am~d {weekday} die~b {ordinal_e} Frage~c beantwortet~a",
    ),
    (
        "prices~a rose~b by~c {percentage} in~d {month}",
        "im~d {month} sind~b die~a Preise~a um~c {percentage} gestiegen~b",
    ),
    (
        "{percentage} of~a the~a students~b passed~c the~d exam~e in~f {month}",
        "im~f {month} haben~c {percentage} der~a Studenten~b die~d Prüfung~e "
        "bestanden~c",
    ),
]
