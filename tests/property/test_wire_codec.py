"""The codec: what was meant arrives as it was meant; what nobody can mean is refused in words, whatever the bytes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import example, given
from hypothesis import strategies as st

from rackpower.v1 import agent_pb2
from rackpower_common.model.messages import AgentMessage, ControllerMessage
from rackpower_common.units import ms_from_s, ms_up_from_s
from rackpower_common.wire.checks import WireError
from rackpower_common.wire.controller_messages import decode_controller_message, encode_controller_message
from rackpower_common.wire.decode_agent import decode_agent_message
from rackpower_common.wire.encode_agent import encode_agent_message
from support.wire_values import agent_messages, controller_messages


@given(agent_messages())
def test_what_an_agent_means_arrives_as_it_was_meant(message: AgentMessage) -> None:
    """Every message of an agent survives the wire, bytes included."""
    sent = encode_agent_message(message).SerializeToString()
    assert decode_agent_message(agent_pb2.ConnectRequest.FromString(sent)) == message


@given(controller_messages())
def test_what_a_controller_means_arrives_as_it_was_meant(message: ControllerMessage) -> None:
    """Every message of a controller survives the wire, bytes included."""
    sent = encode_controller_message(message).SerializeToString()
    assert decode_controller_message(agent_pb2.ConnectResponse.FromString(sent)) == message


@given(st.floats(0, 1e9))
@example(1.001)
@example(4.35)
def test_durations_round_to_their_safe_side(duration_s: float) -> None:
    """Down never states longer, up never shorter, but for float noise; neither is off by more than 1 ms."""
    exact_ms = duration_s * 1000
    noise_ms = 1e-6 + exact_ms * 1e-15
    assert exact_ms - 1 - noise_ms <= ms_from_s(duration_s) <= exact_ms + noise_ms
    assert exact_ms - noise_ms <= ms_up_from_s(duration_s) <= exact_ms + 1 + noise_ms


HOSTILE: dict[int, list[object]] = {
    FieldDescriptor.CPPTYPE_INT32: [-(2**31), -1, 0, 1, 101, 2**31 - 1],
    FieldDescriptor.CPPTYPE_INT64: [-(2**63), -1, 0, 1, 999, 1001, 400_000, 2**62, 2**63 - 1],
    FieldDescriptor.CPPTYPE_UINT32: [0, 1, 2**32 - 1],
    FieldDescriptor.CPPTYPE_UINT64: [0, 1, 2**53 + 1, 2**64 - 1],
    FieldDescriptor.CPPTYPE_DOUBLE: [float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e300],
    FieldDescriptor.CPPTYPE_BOOL: [True, False],
    FieldDescriptor.CPPTYPE_ENUM: [0, 1, 99, -1],
    FieldDescriptor.CPPTYPE_STRING: ["", "x", "a\nb", "\x1b[31m", "x" * 5000, "✓"],
}


def vandalised(message: Message, rng: random.Random) -> None:
    """Set one field somewhere in a message to something hostile, or drop it, or repeat an item."""
    owners = list(submessages(message))
    owner = rng.choice(owners)
    field = rng.choice(list(owner.DESCRIPTOR.fields))
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if field.is_repeated:
            items = getattr(owner, field.name)
            for _ in range(rng.choice([1, 2, 70])):
                items.add().CopyFrom(rng.choice(items)) if items and rng.random() < 0.8 else items.add()
        elif rng.random() < 0.5:
            owner.ClearField(field.name)
        else:
            getattr(owner, field.name).SetInParent()
        return
    value = rng.choice(HOSTILE[field.cpp_type])
    if field.is_repeated:
        getattr(owner, field.name).extend([value] * rng.choice([1, 2, 2000]))
    else:
        setattr(owner, field.name, value)


def submessages(message: Message) -> Iterator[Message]:
    """Yield a message and every message inside it."""
    yield message
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from submessages(inner)


@given(agent_messages(), st.integers(0, 2**32))
def test_a_hostile_agent_gets_a_value_or_words(message: AgentMessage, seed: int) -> None:
    """Whatever a field is set to, decoding gives a value that can be sent on, or a WireError with words."""
    rng = random.Random(seed)
    sent = encode_agent_message(message)
    for _ in range(rng.randint(1, 3)):
        vandalised(sent, rng)
    got = value_or_words(decode_agent_message, sent)
    if got is not None:
        assert decode_agent_message(encode_agent_message(got)) == got


@given(controller_messages(), st.integers(0, 2**32))
def test_a_hostile_controller_gets_a_value_or_words(message: ControllerMessage, seed: int) -> None:
    """The same for what an agent hears."""
    rng = random.Random(seed)
    sent = encode_controller_message(message)
    for _ in range(rng.randint(1, 3)):
        vandalised(sent, rng)
    got = value_or_words(decode_controller_message, sent)
    if got is not None:
        assert decode_controller_message(encode_controller_message(got)) == got


@given(st.binary(max_size=200))
def test_any_bytes_are_no_crash(content: bytes) -> None:
    """Bytes decode to nothing, to a value, or to an error of protobuf's or ours."""
    with contextlib.suppress(DecodeError):
        value_or_words(decode_agent_message, agent_pb2.ConnectRequest.FromString(content))
    with contextlib.suppress(DecodeError):
        value_or_words(decode_controller_message, agent_pb2.ConnectResponse.FromString(content))


Sent = TypeVar("Sent", bound=Message)
Meant = TypeVar("Meant")


def value_or_words(decode: Callable[[Sent], Meant], message: Sent) -> Meant | None:
    """Return what a message means, None when it is refused; any other error is a bug, and so are unprintable words."""
    words = ""
    try:
        return decode(message)
    except WireError as error:
        words = error.message
    assert words
    assert words.isprintable()
    return None
