"""Converts payloads (parsed JSON) to an Arrow array of the type given by `payload_schema`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from spark_bull.errors import SparkBullError
from spark_bull.spark.json.json_text import MAX_SHOWN
from spark_bull.spark.platform.lazy_arrow import pa

Convert = Callable[[Any], Any]


class WrongPayload(SparkBullError):
    """The payload of a job does not match `payload_schema`."""


def payload_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Converts parsed payloads to an Arrow array. Missing fields become null; fields unknown to the type are dropped.

    Times are ISO 8601 text (UTC if there is no offset) or ms since 1970; binary is base64. Raises WrongPayload for a
    value of another type.
    """
    convert = converter(kind)
    try:
        return pa.array(values if convert is None else [convert(value) for value in values], kind)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        shown = json.dumps(values[0])[:MAX_SHOWN] if len(values) == 1 else f"{len(values)} payloads"
        raise WrongPayload(f"expected the payload to match the schema {kind} ({error}), got: {shown}") from None


def converter(kind: pa.DataType) -> Convert | None:
    """Returns the function that converts JSON values for Arrow type `kind`; None if they need no conversion."""
    if pa.types.is_timestamp(kind):
        return _nullable(_timestamp)
    if pa.types.is_date(kind):
        return _nullable(lambda value: date.fromisoformat(value[:10]))
    if pa.types.is_decimal(kind):
        return _nullable(lambda value: Decimal(str(value)))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _nullable(base64.b64decode)
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(converter(kind.value_type))
    if pa.types.is_map(kind):
        return _map(converter(kind.item_type) or _identity)
    return None


def _list(item: Convert | None) -> Convert | None:
    return None if item is None else _nullable(lambda values: [item(value) for value in values])


def _map(item: Convert) -> Convert:
    return _nullable(lambda values: [(key, item(value)) for key, value in values.items()])


def _struct(kind: pa.DataType) -> Convert | None:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    converters = {field.name: found for field in fields if (found := converter(field.type)) is not None}
    if not converters:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return value | {name: change(value.get(name)) for name, change in converters.items()}

    return _nullable(convert)


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _identity(value: Any) -> Any:
    return value


def _timestamp(value: Any) -> datetime:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, timezone.utc)
    moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
