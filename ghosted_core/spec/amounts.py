"""How many layers go, and which: the forms in which people say it."""

import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

PERCENTAGE = r"^[0-9]{1,2}(\.[0-9]{1,6})?%$"
# No model has nearly as many layers; a range without end must not fill the memory.
LAYERS_LIMIT = 65_536


def _read_amount(value: Any) -> Any:
    """A whole number above 0, or text like '25%' (above 0, below 100), kept as it was said."""
    if isinstance(value, str) and re.fullmatch(PERCENTAGE, value) and Decimal(value[:-1]) > 0:
        return value
    # At most nine digits: longer ones are no count, and Python refuses to read very long ones.
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
        return value
    raise ValueError("neither a number of layers above 0 nor a share of them like '25%'")


# The same as a pattern: digits, or a share, that are not all 0.
AMOUNT = (
    r"^(?:0{0,8}[1-9][0-9]{0,8}"
    r"|(?:0?[1-9]|[1-9][0-9])(?:\.[0-9]{1,6})?%"
    r"|0{1,2}\.[0-9]{0,5}[1-9]%)$"
)
INDICES = r"^ *[0-9]{1,9}(?:-[0-9]{1,9})? *(?:, *[0-9]{1,9}(?:-[0-9]{1,9})? *)*$"

LayerAmount = Annotated[
    int | str,
    BeforeValidator(_read_amount),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "exclusiveMaximum": 10**9},
                {"type": "string", "pattern": AMOUNT},
            ]
        },
    ),
]


def resolve_amount(amount: int | str, layer_count: int) -> int:
    """The number of layers that `amount` means for a model of `layer_count` layers.

    A percentage is rounded to the nearest whole number, halves upwards, and is at least 1.
    """
    if isinstance(amount, int):
        return amount
    share = Decimal(amount.removesuffix("%")) * layer_count / 100
    return max(1, int(share.to_integral_value(ROUND_HALF_UP)))


def parse_indices(text: str) -> tuple[int, ...]:
    """'3,5,8-12' as indices; ranges include both ends.

    Raises:
        ValueError: another form, or more layers than any model has.
    """
    ranges = [_range(part.strip()) for part in text.split(",")]
    if sum(map(len, ranges)) > LAYERS_LIMIT:
        raise ValueError(f"more than {LAYERS_LIMIT} layers are named")
    return tuple(index for one in ranges for index in one)


def _range(part: str) -> range:
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
    if match is None:
        raise ValueError(f"'{part}' is neither a layer index nor a range like 8-12")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"the range '{part}' does not run upwards")
    return range(first, last + 1)


def read_indices(value: Any) -> Any:
    """Text, or a list with text in it, as indices; everything else as it is."""
    if isinstance(value, str):
        return parse_indices(value)
    if isinstance(value, list | tuple) and any(isinstance(item, str) for item in value):
        return parse_indices(",".join(str(item) for item in value))
    return value
